package auth

import (
	"strings"
	"testing"
)

// Rows of wire.md 3.2.1: what is held, what is asked, the answer.
func TestPermissionGrantsExactlyWhatItNames(t *testing.T) {
	long := strings.Repeat("n", 4000)
	stream := func(a Action, ns, s string) func(*Identity) bool {
		return func(i *Identity) bool {
			x, y := i.AllowStream(a, ns, s), i.AllowStreamBytes(a, []byte(ns), []byte(s))
			if x != y {
				panic("AllowStream and AllowStreamBytes differ")
			}
			return x
		}
	}
	cache := func(a Action, ns, c, key string) func(*Identity) bool {
		return func(i *Identity) bool { return i.AllowCache(a, ns, c, key) }
	}
	prefix := func(a Action, ns, c, p string) func(*Identity) bool {
		return func(i *Identity) bool { return i.AllowCachePrefix(a, ns, c, p) }
	}
	group := func(a Action, ns, s, g string) func(*Identity) bool {
		return func(i *Identity) bool { return i.AllowGroup(a, ns, s, g) }
	}
	cluster := func(i *Identity) bool { return i.AllowClusterView() }
	list := func(perms ...string) []string { return perms }

	for _, c := range []struct {
		held []string
		ask  func(*Identity) bool
		want bool
	}{
		// actions are equal, not implied
		{nil, stream(StreamPublish, "n", "s"), false},
		{list("stream.publish:stream:t1/n/s"), stream(StreamPublish, "n", "s"), true},
		{list("stream.publish:stream:t1/n/s"), stream(StreamSubscribe, "n", "s"), false},
		{list("stream.manage:stream:t1/n/s"), stream(StreamPublish, "n", "s"), false},
		{list("tenant.manage:tenant:t1"), stream(StreamPublish, "n", "s"), false},
		{list("tenant.manage:tenant:t1"), func(i *Identity) bool { return i.AllowTenant(TenantManage) }, true},
		{list("tenant.manage:tenant:t2"), func(i *Identity) bool { return i.AllowTenant(TenantManage) }, false},
		{list("ns.manage:namespace:t1/n"), func(i *Identity) bool { return i.AllowNamespace(NamespaceManage, "n") }, true},
		{list("ns.manage:namespace:t1/n"), func(i *Identity) bool { return i.AllowNamespace(NamespaceManage, "m") }, false},
		{list("ns.manage:namespace:t1/n"), func(i *Identity) bool { return i.AllowNamespace(NamespaceManage, "n/m") }, false},
		{list("node.view:node:3"), func(i *Identity) bool { return i.Allow(NodeView, "node:3") }, true},
		{list("node.view:node:3"), func(i *Identity) bool { return i.Allow(actionCount, "node:3") }, false},

		// * is any run of bytes; nothing else is special
		{list("stream.publish:stream:t1/n/*"), stream(StreamPublish, "n", "s"), true},
		{list("stream.publish:stream:t1/n/*"), stream(StreamPublish, "n", ""), true},
		{list("stream.publish:stream:t1/n/*"), stream(StreamPublish, "m", "s"), false},
		{list("stream.publish:stream:t1/*"), stream(StreamPublish, "m", "s"), true},
		{list("stream.publish:stream:*"), stream(StreamPublish, "m", "s"), true},
		{list("stream.publish:*"), stream(StreamPublish, "m", "s"), true},
		{list("stream.publish:stream:t1/*/s"), stream(StreamPublish, "m", "s"), true},
		{list("stream.publish:stream:t1/*/s"), stream(StreamPublish, "m", "ss"), false},
		{list("stream.publish:stream:t1/n/a*b*c"), stream(StreamPublish, "n", "abc"), true},
		{list("stream.publish:stream:t1/n/a*b*c"), stream(StreamPublish, "n", "aXbXbYc"), true},
		{list("stream.publish:stream:t1/n/a*b*c"), stream(StreamPublish, "n", "acb"), false},
		{list("stream.publish:stream:t1/n/a*a"), stream(StreamPublish, "n", "a"), false},
		{list("stream.publish:stream:t1/n/a*a"), stream(StreamPublish, "n", "aa"), true},
		{list("stream.publish:stream:t1/n/**"), stream(StreamPublish, "n", "x"), true},
		{list("stream.publish:stream:t1/n/a?c"), stream(StreamPublish, "n", "abc"), false},
		{list("stream.publish:stream:t1/n/a.c"), stream(StreamPublish, "n", "abc"), false},
		{list("stream.publish:stream:t1/n/[ab]"), stream(StreamPublish, "n", "a"), false},
		{list("stream.publish:stream:t1/n/S"), stream(StreamPublish, "n", "s"), false},
		{list("stream.publish:stream:t1/n/é*"), stream(StreamPublish, "n", "é1"), true},
		{list("stream.publish:stream:t1/n/s"), stream(StreamPublish, "n", "s2"), false},
		{list("stream.publish:stream:t1/n/s2"), stream(StreamPublish, "n", "s"), false},
		{list("stream.publish:stream:t1/n/" + long + "*"), stream(StreamPublish, "n", long+"x"), true},
		{list("stream.publish:stream:t2/n/s"), stream(StreamPublish, "n", "s"), false},
		{list("stream.publish:cache:t1/n/s"), stream(StreamPublish, "n", "s"), false},
		{list("stream.publish:stream:t1/a/b", "stream.publish:stream:t1/n/s"), stream(StreamPublish, "n", "s"), true},
		// a name with a separator poses as nothing
		{list("stream.publish:stream:t1/n/*"), stream(StreamPublish, "n/x", "s"), false},
		{list("stream.publish:stream:t1/n/*"), stream(StreamPublish, "n", "x/s"), false},

		// whole caches and keys (OPS-4)
		{list("cache.read:cache:t1/n/c"), cache(CacheRead, "n", "c", "k"), true},
		{list("cache.read:cache:t1/n/c"), cache(CacheWrite, "n", "c", "k"), false},
		{list("cache.read:cache:t1/n/*"), cache(CacheRead, "n", "c", "k"), true},
		{list("cache.read:cache:t1/*"), cache(CacheRead, "n", "c", "a/b"), true},
		{list("cache.read:cache:t1/n/c/k"), cache(CacheRead, "n", "c", "k"), true},
		{list("cache.read:cache:t1/n/c/k"), cache(CacheRead, "n", "c", "k2"), false},
		{list("cache.read:cache:t1/n/c/k"), cache(CacheRead, "n", "d", "k"), false},
		{list("cache.read:cache:t1/n/c/k*"), cache(CacheRead, "n", "c", "k2"), true},
		{list("cache.read:cache:t1/n/c/k*"), cache(CacheRead, "n", "c", "k"), true},
		{list("cache.read:cache:t1/n/c/k*"), cache(CacheRead, "n", "c", "j"), false},
		{list("cache.read:cache:t1/n/c/a/b*"), cache(CacheRead, "n", "c", "a/bc"), true},
		{list("cache.read:cache:t1/n/c/a/b*"), cache(CacheRead, "n", "c", "a/cb"), false},
		{list("cache.read:cache:t1/*/c/k"), cache(CacheRead, "n", "c", "k"), true},
		{list("cache.read:cache:t1/*/c/k"), cache(CacheRead, "n", "x", "c/k"), false}, // a star of a name stays in names
		{list("cache.read:cache:t1/n/c", "cache.read:cache:t1/n/c/k"), cache(CacheRead, "n", "c", "j"), true},
		{list("cache.read:cache:t1/n/c/*"), cache(CacheRead, "n", "c", "j"), true},
		{list("cache.read:cache:t1/n/c/k"), cache(CacheRead, "n", "c/k", ""), false},
		{list("cache.manage:cache:t1/n/c"), func(i *Identity) bool { return i.AllowWholeCache(CacheManage, "n", "c") }, true},
		{list("cache.manage:cache:t1/n/c/*"), func(i *Identity) bool { return i.AllowWholeCache(CacheManage, "n", "c") }, false},

		// a watch of a prefix needs all of it
		{list("cache.read:cache:t1/n/c"), prefix(CacheRead, "n", "c", ""), true},
		{list("cache.read:cache:t1/n/c/*"), prefix(CacheRead, "n", "c", ""), true},
		{list("cache.read:cache:t1/n/c/ab*"), prefix(CacheRead, "n", "c", "ab"), true},
		{list("cache.read:cache:t1/n/c/ab*"), prefix(CacheRead, "n", "c", "abc"), true},
		{list("cache.read:cache:t1/n/c/ab*"), prefix(CacheRead, "n", "c", "a"), false},
		{list("cache.read:cache:t1/n/c/ab*"), prefix(CacheRead, "n", "c", ""), false},
		{list("cache.read:cache:t1/n/c/ab"), prefix(CacheRead, "n", "c", "ab"), false},
		{list("cache.read:cache:t1/n/c/a*b"), prefix(CacheRead, "n", "c", "ab"), false},

		// groups: the two implications, and the scope of a named group
		{list("group.consume:group:t1/n/s/g"), group(GroupConsume, "n", "s", "g"), true},
		{list("group.consume:group:t1/n/s/g"), group(GroupManage, "n", "s", "g"), false},
		{list("group.consume:stream:t1/n/s"), group(GroupConsume, "n", "s", "g"), true},
		{list("stream.subscribe:stream:t1/n/s"), group(GroupConsume, "n", "s", "g"), true},
		{list("stream.subscribe:stream:t1/n/s"), group(GroupManage, "n", "s", "g"), false},
		{list("stream.manage:stream:t1/n/s"), group(GroupManage, "n", "s", "g"), true},
		{list("stream.manage:stream:t1/n/s"), group(GroupConsume, "n", "s", "g"), false},
		{list("stream.publish:stream:t1/n/s"), group(GroupConsume, "n", "s", "g"), false},
		{list("stream.subscribe:stream:t1/n/s"), group(StreamSubscribe, "n", "s", "g"), true},
		{list("group.consume:group:t1/n/s/g", "stream.subscribe:stream:t1/n/s"), group(GroupConsume, "n", "s", "h"), false},
		{list("group.consume:group:t1/n/s/g", "group.consume:stream:t1/n/s"), group(GroupConsume, "n", "s", "h"), false},
		{list("group.consume:group:t1/n/s/g", "group.consume:stream:t1/n/s"), group(GroupConsume, "n", "s", "g"), true},
		{list("group.consume:group:t1/n/s/g", "group.consume:group:t1/n/s/h"), group(GroupConsume, "n", "s", "h"), true},
		{list("group.consume:group:t1/n/s/g", "stream.subscribe:stream:t1/n/*"), group(GroupConsume, "n", "s2", "h"), true},
		{list("group.consume:group:t1/n/s/g", "stream.manage:stream:t1/n/s"), group(GroupManage, "n", "s", "h"), true}, // for that action only
		{list("group.manage:group:t1/n/s/g", "stream.manage:stream:t1/n/s"), group(GroupManage, "n", "s", "h"), false},
		{list("group.consume:group:t1/n/*/g", "stream.subscribe:stream:t1/n/s"), group(GroupConsume, "n", "s", "h"), false},
		{list("group.consume:group:t1/n/s*/g", "stream.subscribe:stream:t1/n/*"), group(GroupConsume, "n", "r", "h"), true},
		{list("group.consume:group:t1/*"), group(GroupConsume, "n", "s", "g"), true},
		{list("group.consume:group:t2/n/s/g", "stream.subscribe:stream:t1/n/s"), group(GroupConsume, "n", "s", "h"), true},
		{list("group.consume:group:t1/n/s", "stream.subscribe:stream:t1/n/s"), group(GroupConsume, "n", "s", "h"), true}, // names no group

		// diagnosis: one permission, no pattern like it
		{list("node.view:cluster:*"), cluster, true},
		{list("node.view:*"), cluster, false},
		{list("node.view:cluster:**"), cluster, false},
		{list("node.view:cluster:"), cluster, false},
		{list("node.manage:cluster:*"), cluster, false},
	} {
		if got := c.ask(identity(t, c.held...)); got != c.want {
			t.Errorf("%q: got %v, want %v", c.held, got, c.want)
		}
	}
}

// A tenant's own name may hold what separates names elsewhere.
func TestTenantWithSeparatorKeepsItsKeysApart(t *testing.T) {
	id := identityOf(t, "a/b", "cache.read:cache:a/b/n/c/k", "stream.publish:stream:a/b/n/s")
	for key, want := range map[string]bool{"k": true, "j": false} {
		if got := id.AllowCache(CacheRead, "n", "c", key); got != want {
			t.Errorf("key %s: %v", key, got)
		}
	}
	if !id.AllowStream(StreamPublish, "n", "s") {
		t.Error("stream")
	}
	if whole := identityOf(t, "a/b", "cache.read:cache:a/b/n/c"); !whole.AllowCache(CacheRead, "n", "c", "j") {
		t.Error("whole cache")
	}
}

// A development token may do everything there is, in its tenant.
func TestEveryPermissionAllowsEverything(t *testing.T) {
	id := identityOf(t, "dev", EveryPermission("dev")...)
	for what, ok := range map[string]bool{
		"publish": id.AllowStream(StreamPublish, "n", "s"), "subscribe": id.AllowStream(StreamSubscribe, "n", "s"),
		"manage": id.AllowStream(StreamManage, "n", "s"), "read": id.AllowCache(CacheRead, "n", "c", "k"),
		"write": id.AllowCache(CacheWrite, "n", "c", "k"), "watch": id.AllowCachePrefix(CacheRead, "n", "c", ""),
		"cache": id.AllowWholeCache(CacheManage, "n", "c"), "consume": id.AllowGroup(GroupConsume, "n", "s", "g"),
		"groups": id.AllowGroup(GroupManage, "n", "s", "g"), "tenant": id.AllowTenant(TenantManage),
		"namespace": id.AllowNamespace(NamespaceManage, "n"), "cluster": id.AllowClusterView(),
	} {
		if !ok {
			t.Errorf("not allowed: %s", what)
		}
	}
}

// No judgement allocates, so that sessions may ask per frame.
func TestJudgementsDoNotAllocate(t *testing.T) {
	id := identity(t, "stream.publish:stream:t1/other/*", "stream.publish:stream:t1/*/a*b", "cache.read:cache:t1/n/c/k*",
		"group.consume:group:t1/n/s/g")
	ns, name := []byte("default"), []byte("orders")
	if n := testing.AllocsPerRun(100, func() {
		id.AllowStream(StreamPublish, "default", "orders")
		id.AllowStreamBytes(StreamPublish, ns, name)
		id.AllowCache(CacheRead, "n", "c", "key")
		id.AllowCachePrefix(CacheRead, "n", "c", "key")
		id.AllowGroup(GroupConsume, "n", "s", "h")
		id.AllowGroup(GroupConsume, "n", "r", "h")
		id.AllowTenant(TenantManage)
		id.AllowClusterView()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// globSlow is the definition of matching, for comparison.
func globSlow(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	if pattern[0] == '*' {
		for i := 0; i <= len(s); i++ {
			if globSlow(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	return s != "" && pattern[0] == s[0] && globSlow(pattern[1:], s[1:])
}

// Any entry of perms: it is read or refused, and a pattern matches what the definition says.
func FuzzPermission(f *testing.F) {
	f.Add("stream.publish:stream:t1/n/*", "stream:t1/n/s")
	f.Add("cache.read:cache:t1/n/c/k*", "cache:t1/n/c")
	f.Add("group.consume:group:t1/*/s/g", "group:t1/n/s/")
	f.Add("node.view:cluster:*", "cluster:*")
	f.Add("x:a*b*a", "aba")
	f.Fuzz(func(t *testing.T, text, resource string) {
		action, p, err := parsePermission("t1", text)
		if err != nil {
			return
		}
		if got, _ := ParseAction(action.String()); got != action || !strings.HasPrefix(text, action.String()+":") {
			t.Fatalf("action %v of %q", action, text)
		}
		if p.isKeys && p.cache.text+"/"+p.key.text != p.text {
			t.Fatalf("%q cut into %q and %q", p.text, p.cache.text, p.key.text)
		}
		if len(p.text) > 24 || strings.Count(p.text, "*") > 6 || len(resource) > 40 {
			return // the definition is exponential
		}
		r := []byte(resource)
		if got, want := p.match(r), globSlow(p.text, resource); got != want {
			t.Fatalf("%q on %q: %v, want %v", p.text, resource, got, want)
		}
		if p.match(r) && p.open() && !globSlow(p.text, resource+"x") {
			t.Fatalf("%q is open but does not match %qx", p.text, resource)
		}
		if cut := len(resource) / 2; p.match(r) && cut < len(resource) && !p.touches(r[:cut]) {
			t.Fatalf("%q matches %q but does not touch %q", p.text, resource, resource[:cut])
		}
	})
}
