package admin

import (
	"cmp"
	"slices"

	"github.com/ringcast/ringcast/core"
)

// lagging returns the subscriptions that are behind or have lost deliveries, the worst first.
func lagging(subs []core.SubscriptionInfo) []laggingReader {
	list := []laggingReader{}
	for _, s := range subs {
		lag := s.Tail - min(s.Position, s.Tail)
		if lag == 0 && s.Dropped == 0 {
			continue
		}
		list = append(list, laggingReader{
			s.Tenant, s.Namespace, s.Stream, s.Shard, s.ID, lag, s.Depth, s.Capacity, s.Dropped, s.Live,
		})
	}
	slices.SortFunc(list, func(a, b laggingReader) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(a.ID, b.ID))
	})
	return list[:min(len(list), laggingMax)]
}
