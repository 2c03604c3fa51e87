// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readStrictly reads a dashboard with the types that Grafana generates from its schema: dashboards, both kinds of panels that we have, rows, and queries of Prometheus. It
// returns the panels that are no rows.
func readStrictly(text []byte) ([]dashboard.Panel, error) {
	types := cog.NewRuntime()
	types.RegisterPanelcfgVariant(timeseries.VariantConfig())
	types.RegisterPanelcfgVariant(stat.VariantConfig())
	var d dashboard.Dashboard //nolint:staticcheck // ConfigMaps of dashboards have the first version; the second one is for the API of Grafana
	if err := errors.Join(mistakes(d.UnmarshalJSONStrict(text)), mistakes(d.Validate())); err != nil {
		return nil, err
	}
	var raw struct {
		Panels []json.RawMessage `json:"panels"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	var panels []dashboard.Panel
	for _, one := range raw.Panels { // the type of a dashboard drops those that it cannot read
		var row dashboard.RowPanel
		var panel dashboard.Panel
		if json.Unmarshal(one, &row) == nil && row.Type == "row" {
			if err := errors.Join(mistakes(row.UnmarshalJSONStrict(one)), mistakes(row.Validate())); err != nil {
				return nil, fmt.Errorf("row %s: %w", one, err)
			}
			continue
		}
		if err := errors.Join(mistakes(panel.UnmarshalJSONStrict(one)), mistakes(panel.Validate()), readQueries(one)); err != nil {
			return nil, fmt.Errorf("panel %s: %w", one, err)
		}
		panels = append(panels, panel)
	}
	return panels, nil
}

// readQueries reads the queries of a panel, whose type knows no source of data.
func readQueries(panel []byte) error {
	var raw struct {
		Targets []json.RawMessage `json:"targets"`
	}
	if err := json.Unmarshal(panel, &raw); err != nil {
		return err
	}
	for _, one := range raw.Targets {
		var query prometheus.Dataquery
		if err := errors.Join(mistakes(query.UnmarshalJSONStrict(one)), mistakes(query.Validate())); err != nil {
			return err
		}
	}
	return nil
}

// mistakes is an error that names at least one: without any, the types return an empty list, which is no nil.
func mistakes(err error) error {
	if list, is := errors.AsType[cog.BuildErrors](err); is && len(list) == 0 {
		return nil
	}
	return err
}

// Every dashboard is what Grafana's schema says: it knows all fields, and each value has the type and is within the bounds that the schema states.
func TestDashboardsFollowTheSchemaOfGrafana(t *testing.T) {
	for name, text := range texts(t) {
		panels, err := readStrictly(text)
		require.NoError(t, err, name)
		assert.NotEmpty(t, panels, name)
		for _, p := range panels {
			assert.NotEmpty(t, p.Targets, "%s: %s", name, *p.Title)
			assert.Equal(t, "prometheus", *p.Datasource.Type, "%s: %s", name, *p.Title)
			_, known := cog.ConfigForPanelcfgVariant(p.Type)
			assert.True(t, known, "%s: read panels of the type %s with their schema", name, p.Type)
		}
	}
}

// A mistake anywhere in a dashboard is found.
func TestMistakesInDashboardsAreFound(t *testing.T) {
	overview := texts(t)["overview"]
	_, err := readStrictly(overview)
	require.NoError(t, err)
	for sentence, change := range map[string][2]string{
		"a field of the dashboard that there is not": {`"schemaVersion": `, `"schemaVersions": 1, "schemaVersion": `},
		"a field of a panel that there is not":       {`"gridPos": `, `"gridPosition": {}, "gridPos": `},
		"an option that there is not":                {`"colorMode": `, `"colourMode": "value", "colorMode": `},
		"a field of a query that there is not":       {`"expr": `, `"expression": "up", "expr": `},
		"a value of another type":                    {`"refresh": "30s"`, `"refresh": 30`},
		"a place outside of the dashboard":           {`"w": 24`, `"w": 25`},
	} {
		t.Run(sentence, func(t *testing.T) {
			wrong := bytes.Replace(overview, []byte(change[0]), []byte(change[1]), 1)
			require.NotEqual(t, overview, wrong)
			_, err := readStrictly(wrong)
			assert.Error(t, err)
		})
	}
}
