// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
)

// infraEnvRow is an InfraEnv in the list.
type infraEnvRow struct {
	api.InfraEnv
	Machines int
}

type infraEnvList struct {
	Rows   []infraEnvRow
	Total  int
	Before string
	After  string
}

func listInfraEnvs(v *visit) error {
	at := machinefilter.PageNumber(v.r.URL.Query())
	list, total, err := page[[]api.InfraEnv](v.api.ListInfraEnvs(v.r.Context(), &api.ListInfraEnvsParams{Limit: new(machinefilter.PageSize), Offset: new(at * machinefilter.PageSize)}))
	if err != nil {
		return err
	}
	body := infraEnvList{Total: total}
	for i := range list {
		_, machines, err := v.hosts(machinefilter.Filter{InfraEnv: &list[i].ID}, 1, 0)
		if err != nil {
			return err
		}
		body.Rows = append(body.Rows, infraEnvRow{list[i], machines})
	}
	body.Before, body.After = machinefilter.Neighbours("/infra-envs", at, total)
	return v.show("infraenvs", t("infraenvs.title"), &body)
}

// infraEnvForm is what a person wrote, and what is wrong with it.
type infraEnvForm struct {
	url.Values
	Problem string
	// Unread is true for a form that was refused before it was read: all of it is shown again.
	Unread bool
	// SignIn is where a person can sign in before the form is sent again, empty where that is not needed.
	SignIn string
}

// Field is what the person wrote, so that it is not lost. A pull secret that was read is a secret: it is written again.
func (f infraEnvForm) Field(name string) string {
	if name == "pull_secret" && !f.Unread {
		return ""
	}
	return f.Get(name)
}

// Wrote is true for a form with one of the fields that are folded away at first.
func (f infraEnvForm) Wrote(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return f.Get(name) != "" })
}

// Wipes are what may be done with disks of machines that are released, the default first.
func (f infraEnvForm) Wipes() []api.OnReleaseWipe { return wipes() }

func wipes() []api.OnReleaseWipe {
	return []api.OnReleaseWipe{api.OnReleaseWipeNone, api.OnReleaseWipeInstalledDisk, api.OnReleaseWipeAllDisks}
}

func newInfraEnv(v *visit) error {
	return v.show("infraenv-new", t("infraenvs.new"), infraEnvForm{Values: url.Values{}})
}

func createInfraEnv(v *visit) error {
	if err := v.r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, t("error.form")}
	}
	form := v.r.PostForm
	wanted, err := wantedInfraEnv(form)
	var made api.InfraEnv
	if err == nil {
		made, err = call[api.InfraEnv](v.api.RegisterInfraEnv(v.r.Context(), wanted))
	}
	if reason, ok := reasonOf(err); ok {
		return v.show("infraenv-new", t("infraenvs.new"), infraEnvForm{Values: form, Problem: reason})
	}
	if err != nil {
		return err
	}
	return v.redirect("/infra-envs/" + made.ID.String())
}

// wantedInfraEnv translates a form. Networks of machines are a JSON list, as the API has it.
func wantedInfraEnv(form url.Values) (api.InfraEnvCreateParams, error) {
	field := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	optional := func(name string) (n nullable.Nullable[string]) {
		if value := field(name); value != "" {
			n.Set(value)
		}
		return n
	}
	wanted := api.InfraEnvCreateParams{
		Name: field("name"), PullSecret: field("pull_secret"), SSHAuthorizedKey: optional("ssh_key"), ImageType: api.ImageType(field("image_type")), AdditionalNtpSources: optional("ntp"),
		Proxy:     api.Proxy{HTTPProxy: optional("http_proxy"), HTTPSProxy: optional("https_proxy"), NoProxy: optional("no_proxy")},
		OnRelease: api.OnRelease{Wipe: api.OnReleaseWipe(field("wipe"))},
	}
	if text := field("kernel_arguments"); text != "" {
		var list []api.KernelArgument
		for word := range strings.FieldsSeq(text) {
			list = append(list, api.KernelArgument{Operation: "append", Value: word})
		}
		wanted.KernelArguments.Set(list)
	}
	if text := field("static_networks"); text != "" {
		var list []api.HostStaticNetworkConfig
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return wanted, &refusal{http.StatusBadRequest, t("infraenvs.networks_wrong", err)}
		}
		wanted.StaticNetworkConfig.Set(list)
	}
	return wanted, nil
}

type infraEnvPage struct {
	api.InfraEnv
	Machines []machine
	Total    int
	All      string
	// IPXE is the address of the script, shown once it is asked for.
	IPXE string
	// Said is what was done.
	Said string
}

// Wipes are what the wipe policy may be changed to. It is empty for a custom resource, whose spec would win.
func (p *infraEnvPage) Wipes() []api.OnReleaseWipe {
	if p.CustomResource.Name != "" {
		return nil
	}
	return wipes()
}

func (v *visit) infraEnvID() (uuid.UUID, error) {
	id, err := uuid.Parse(v.r.PathValue("id"))
	if err != nil {
		return id, &refusal{http.StatusNotFound, t("error.nowhere")}
	}
	return id, nil
}

func showInfraEnv(v *visit) error { return v.showInfraEnv("", "") }

func (v *visit) showInfraEnv(ipxe, said string) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	body := infraEnvPage{IPXE: ipxe, Said: said, All: machinefilter.Filter{InfraEnv: &id}.URL()}
	if body.InfraEnv, err = call[api.InfraEnv](v.api.GetInfraEnv(v.r.Context(), id)); err != nil {
		return err
	}
	hosts, total, err := v.hosts(machinefilter.Filter{InfraEnv: &id}, machinefilter.PageSize, 0)
	if err != nil {
		return err
	}
	names, err := v.namesOf(hosts, machinefilter.Filter{})
	if err != nil {
		return err
	}
	for i := range hosts {
		body.Machines = append(body.Machines, newMachine(hosts[i], names))
	}
	body.Total = total
	return v.show("infraenv", body.Name, &body)
}

// downloadImage leads to the image. Its address has a token of its own, which no page shows.
func downloadImage(v *visit) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	image, err := call[api.PresignedURL](v.api.GetInfraEnvDownloadURL(v.r.Context(), id))
	if err != nil {
		return err
	}
	http.Redirect(v.w, v.r, image.URL, http.StatusSeeOther)
	return nil
}

func showIPXE(v *visit) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	script, err := call[api.PresignedURL](v.api.GetInfraEnvPresignedFileURL(v.r.Context(), id, &api.GetInfraEnvPresignedFileURLParams{FileName: "ipxe-script"}))
	if err != nil {
		return err
	}
	return v.showInfraEnv("chain "+script.URL, "")
}

// setWipe changes what happens to disks of machines that are released from now on.
func setWipe(v *visit) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	change := api.InfraEnvUpdateParams{OnRelease: nullable.NewNullableWithValue(api.OnRelease{Wipe: api.OnReleaseWipe(v.r.PostFormValue("wipe"))})}
	if _, err := call[api.InfraEnv](v.api.UpdateInfraEnv(v.r.Context(), id, change)); err != nil {
		return err
	}
	return v.showInfraEnv("", t("infraenv.wiped"))
}

// afterChange leads to an InfraEnv a browser that opens the address of a change once more, such as from its history or a bookmark.
func afterChange(v *visit) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	return v.redirect("/infra-envs/" + id.String())
}

// rotateTokens revokes the tokens of images, or of hosts.
func rotateTokens(v *visit) error {
	id, err := v.infraEnvID()
	if err != nil {
		return err
	}
	what := v.r.PostFormValue("what")
	switch what {
	case "image":
		_, err = accept(v.api.RegenerateInfraEnvSigningKey(v.r.Context(), id))
	case "hosts":
		_, err = accept(v.api.RevokeInfraEnvHostTokens(v.r.Context(), id))
	default:
		err = &refusal{http.StatusBadRequest, t("error.form")}
	}
	if err != nil {
		return err
	}
	return v.showInfraEnv("", t("infraenv.rotated."+what))
}
