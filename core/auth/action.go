package auth

// Action is what a permission allows.
type Action uint8

// The actions of wire.md 3.2.1. An unknown one fails the whole token.
const (
	RBACView Action = iota
	RBACPolicyManage
	RBACAssignmentManage
	TenantManage
	NamespaceManage
	StreamManage
	CacheManage
	StreamPublish
	StreamSubscribe
	CacheRead
	CacheWrite
	GroupConsume
	GroupManage
	NodeView
	NodeManage

	actionCount
)

var actionNames = [actionCount]string{
	RBACView:             "rbac.view",
	RBACPolicyManage:     "rbac.policy.manage",
	RBACAssignmentManage: "rbac.assignment.manage",
	TenantManage:         "tenant.manage",
	NamespaceManage:      "ns.manage",
	StreamManage:         "stream.manage",
	CacheManage:          "cache.manage",
	StreamPublish:        "stream.publish",
	StreamSubscribe:      "stream.subscribe",
	CacheRead:            "cache.read",
	CacheWrite:           "cache.write",
	GroupConsume:         "group.consume",
	GroupManage:          "group.manage",
	NodeView:             "node.view",
	NodeManage:           "node.manage",
}

// String is the name in a token.
func (a Action) String() string {
	if a >= actionCount {
		return "unknown"
	}
	return actionNames[a]
}

// ParseAction reads what String returns.
func ParseAction(name string) (Action, bool) {
	for i, n := range actionNames {
		if n == name {
			return Action(i), true
		}
	}
	return actionCount, false
}
