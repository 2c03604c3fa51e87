// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage

import (
	"fmt"
	"net/url"
	"regexp"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const (
	isoFormat = "live-iso"
	// ChecksumIsAuto is the type of a checksum whose type Ironic finds out.
	ChecksumIsAuto = "auto"
	// defaultChecksumType is what a checksum without type is.
	defaultChecksumType = "md5"
)

// digits are the hexadecimal digits of a checksum, by its type.
var digits = map[string]string{defaultChecksumType: "32", "sha256": "64", "sha512": "128", ChecksumIsAuto: "32, 64 or 128"}

// checksums are what a checksum looks like, by its type.
var checksums = map[string]*regexp.Regexp{
	defaultChecksumType: regexp.MustCompile("^[0-9a-fA-F]{32}$"),
	"sha256":            regexp.MustCompile("^[0-9a-fA-F]{64}$"),
	"sha512":            regexp.MustCompile("^[0-9a-fA-F]{128}$"),
	ChecksumIsAuto:      regexp.MustCompile("^([0-9a-fA-F]{32}|[0-9a-fA-F]{64}|[0-9a-fA-F]{128})$"),
}

// Check says why no Ironic can deploy an image, in a sentence for the user. It is the rule of the admission policy
// baremetalhost-image.muster.io, for images that were written without it. It does not repeat the URL, which can hold a password.
func Check(image *metal3v1.Image) error {
	scheme, ok := remote(image.URL, "http", "https", "oci", "glance")
	if !ok {
		return fmt.Errorf("spec.image.url is not the URL of an image: write one such as https://images.example.com/system.qcow2, " +
			"with http, https, file, oci or glance")
	}
	kind := ChecksumType(image)
	pattern, known := checksums[kind]
	_, isURL := remote(image.Checksum, "http", "https")
	switch {
	case IsLive(image), image.Checksum == "" && scheme == "oci", isURL:
		return nil
	case image.Checksum == "":
		return fmt.Errorf("the image has no checksum: set spec.image.checksum to it, or to the URL where it can be read")
	case !known:
		return fmt.Errorf("spec.image.checksumType %q is not known: use md5, sha256, sha512 or auto", kind)
	case !pattern.MatchString(image.Checksum):
		return fmt.Errorf("spec.image.checksum is not a checksum of type %s: write %s hexadecimal digits or the URL where it can be read, "+
			"or set spec.image.checksumType to another algorithm", kind, digits[kind])
	}
	return nil
}

// IsLive reports whether an image is booted while nothing is written to a disk.
func IsLive(image *metal3v1.Image) bool {
	return image != nil && image.DiskFormat != nil && *image.DiskFormat == isoFormat
}

// ChecksumType is the type of the checksum of an image.
func ChecksumType(image *metal3v1.Image) string {
	if image.ChecksumType == "" {
		return defaultChecksumType
	}
	return image.ChecksumType
}

// remote reads the scheme of a URL. It reports whether that is file, or one of those wanted with a host.
func remote(text string, wanted ...string) (scheme string, ok bool) {
	u, err := url.ParseRequestURI(text)
	if err != nil {
		return "", false
	}
	for _, s := range wanted {
		ok = ok || u.Scheme == s && u.Host != ""
	}
	return u.Scheme, ok || u.Scheme == "file"
}
