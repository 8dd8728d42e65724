// Hot path.

package auth

import (
	"bytes"
	"strings"
)

// Identity is who a verified token speaks for and what it may do. It never changes: streams share it
// and ask it without a lock and without allocating.
//
// The Allow methods judge names within the identity's own tenant. That a request names that tenant is
// for the caller to compare first ("tenant mismatch").
type Identity struct {
	Tenant  string
	Subject string // the publisher's name in records
	KeyID   string // of the key that signed the token
	// IssuedAt and Expires are the token's, in seconds since 1970. A stream that is open outlives them.
	IssuedAt, Expires int64

	grants [actionCount][]permission
	key    [32]byte // the public key that verified the token
}

// resourceLen is how long a resource may be to be put together on the stack; a longer one costs an
// allocation.
const resourceLen = 512

// AllowStream judges an action on a stream.
func (i *Identity) AllowStream(a Action, namespace, stream string) bool {
	if badSegment(namespace) || badSegment(stream) {
		return false
	}
	var mem [resourceLen]byte
	return i.match(a, appendStream(mem[:0], i.Tenant, namespace, stream))
}

// AllowStreamBytes is AllowStream for names that lie in a frame.
func (i *Identity) AllowStreamBytes(a Action, namespace, stream []byte) bool {
	if bytes.IndexByte(namespace, '/') >= 0 || bytes.IndexByte(stream, '/') >= 0 {
		return false
	}
	var mem [resourceLen]byte
	return i.match(a, appendStream(mem[:0], i.Tenant, namespace, stream))
}

func appendStream[T string | []byte](dst []byte, tenant string, namespace, stream T) []byte {
	dst = append(append(dst, "stream:"...), tenant...)
	dst = append(append(dst, '/'), namespace...)
	return append(append(dst, '/'), stream...)
}

// AllowCache judges an action on one key of a cache: a grant of the whole cache, or of the key, or of a
// prefix that it begins with.
func (i *Identity) AllowCache(a Action, namespace, cache, key string) bool {
	return i.allowKeys(a, namespace, cache, key, false)
}

// AllowCachePrefix judges an action on all keys that begin with prefix ("" = all): a grant of the whole
// cache, or one that covers the prefix as a whole.
func (i *Identity) AllowCachePrefix(a Action, namespace, cache, prefix string) bool {
	return i.allowKeys(a, namespace, cache, prefix, true)
}

// AllowWholeCache judges an action on the cache itself. Grants of keys do not count.
func (i *Identity) AllowWholeCache(a Action, namespace, cache string) bool {
	if a >= actionCount || badSegment(namespace) || badSegment(cache) {
		return false
	}
	var mem [resourceLen]byte
	r := i.appendCache(mem[:0], namespace, cache)
	grants := i.grants[a]
	for n := range grants {
		if !grants[n].isKeys && grants[n].match(r) {
			return true
		}
	}
	return false
}

func (i *Identity) allowKeys(a Action, namespace, cache, key string, prefix bool) bool {
	if a >= actionCount || badSegment(namespace) || badSegment(cache) {
		return false
	}
	var mem [resourceLen]byte
	r := i.appendCache(mem[:0], namespace, cache)
	whole := len(r)
	r = append(r, key...)
	name, keyBytes := r[:whole], r[whole:]
	grants := i.grants[a]
	for n := range grants {
		p := &grants[n]
		if !p.isKeys {
			if p.match(name) {
				return true
			}
			continue
		}
		if (!prefix || p.key.open()) && p.key.match(keyBytes) && p.cache.match(name) {
			return true
		}
	}
	return false
}

func (i *Identity) appendCache(r []byte, namespace, cache string) []byte {
	r = append(r, "cache:"...)
	r = append(r, i.Tenant...)
	r = append(append(r, '/'), namespace...)
	return append(append(r, '/'), cache...)
}

// AllowGroup judges GroupConsume or GroupManage on a consumer group. A token that holds the action on any
// group of the stream is limited to the groups it names there. Otherwise a grant on the stream counts,
// and so does StreamSubscribe for consuming and StreamManage for managing.
func (i *Identity) AllowGroup(a Action, namespace, stream, group string) bool {
	if a >= actionCount || badSegment(namespace) || badSegment(stream) {
		return false
	}
	var mem [resourceLen]byte
	r := append(mem[:0], "group:"...)
	r = append(r, i.Tenant...)
	r = append(append(r, '/'), namespace...)
	r = append(append(r, '/'), stream...)
	r = append(r, '/')
	ofStream := len(r)
	r = append(r, group...)
	scoped := false
	grants := i.grants[a]
	for n := range grants {
		p := &grants[n]
		if p.match(r) {
			return true
		}
		scoped = scoped || p.isGroup && p.touches(r[:ofStream])
	}
	if scoped {
		return false
	}
	if i.AllowStream(a, namespace, stream) {
		return true
	}
	switch a {
	case GroupConsume:
		return i.AllowStream(StreamSubscribe, namespace, stream)
	case GroupManage:
		return i.AllowStream(StreamManage, namespace, stream)
	}
	return false
}

// AllowTenant judges an action on the identity's tenant as a whole.
func (i *Identity) AllowTenant(a Action) bool {
	var mem [resourceLen]byte
	r := append(mem[:0], "tenant:"...)
	return i.match(a, append(r, i.Tenant...))
}

// AllowNamespace judges an action on a namespace.
func (i *Identity) AllowNamespace(a Action, namespace string) bool {
	if badSegment(namespace) {
		return false
	}
	var mem [resourceLen]byte
	r := append(mem[:0], "namespace:"...)
	r = append(r, i.Tenant...)
	r = append(append(r, '/'), namespace...)
	return i.match(a, r)
}

// AllowClusterView judges the diagnosis of every tenant: exactly the permission node.view:cluster:*, no
// pattern that would match it.
func (i *Identity) AllowClusterView() bool {
	for _, p := range i.grants[NodeView] {
		if p.text == "cluster:*" {
			return true
		}
	}
	return false
}

// Allow judges an action on a resource that is written out, like "node:3". Group scoping and cache keys
// have methods of their own.
func (i *Identity) Allow(a Action, resource string) bool {
	var mem [resourceLen]byte
	return i.match(a, append(mem[:0], resource...))
}

func (i *Identity) match(a Action, resource []byte) bool {
	if a >= actionCount {
		return false
	}
	grants := i.grants[a]
	for n := range grants {
		if grants[n].match(resource) {
			return true
		}
	}
	return false
}

// badSegment: a name with a separator in it could pose as a deeper resource. Such names exist nowhere.
func badSegment(name string) bool { return strings.IndexByte(name, '/') >= 0 }
