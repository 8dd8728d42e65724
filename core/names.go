package core

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/ringcast/ringcast/wire"
)

// nameMax is the longest tenant, namespace, stream or cache name in bytes (design.md 11).
const nameMax = 255

// keySep joins the parts of a name into one table key. Names hold no control characters, so no
// two different triples give one key.
const keySep = 0

// checkName says whether s may name a tenant, namespace, stream or cache: 1 to 255 bytes of UTF-8
// without control characters, '*', '/' and ':' (they mean something in permissions).
func checkName(what, s string) error {
	if len(s) == 0 || len(s) > nameMax {
		return wire.NewError(wire.CodeInvalidRequest, "%s name must have 1 to %d bytes, has %d", what, nameMax, len(s))
	}
	if !utf8.ValidString(s) {
		return wire.NewError(wire.CodeInvalidRequest, "%s name is not valid UTF-8", what)
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '*' || r == '/' || r == ':' {
			return wire.NewError(wire.CodeInvalidRequest, "%s name %q holds %q, which names may not", what, s, r)
		}
	}
	return nil
}

func checkNames(what, tenant, namespace, name string) error {
	if err := checkName("tenant", tenant); err != nil {
		return err
	}
	if err := checkName("namespace", namespace); err != nil {
		return err
	}
	return checkName(what, name)
}

// appendKey writes the table key of a triple to dst.
func appendKey[T string | []byte](dst []byte, tenant, namespace, name T) []byte {
	dst = append(dst, tenant...)
	dst = append(dst, keySep)
	dst = append(dst, namespace...)
	dst = append(dst, keySep)
	return append(dst, name...)
}

// compareNames orders two triples, given in pairs: tenants, then namespaces, then names.
func compareNames(tenantA, tenantB, namespaceA, namespaceB, nameA, nameB string) int {
	return cmp.Or(
		strings.Compare(tenantA, tenantB),
		strings.Compare(namespaceA, namespaceB),
		strings.Compare(nameA, nameB),
	)
}
