package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcast/ringcast/core"
)

// quotaMax is the most that a quota may allow per second.
const quotaMax = 1 << 40

// parseQuotas reads "tenant:bytes:msgs,...". Bytes may be written like any size. An empty text is no
// quotas.
func parseQuotas(text string) (map[string]core.TenantQuota, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	quotas := map[string]core.TenantQuota{}
	for entry := range strings.SplitSeq(text, ",") {
		parts := strings.Split(strings.TrimSpace(entry), ":")
		if len(parts) != 3 || parts[0] == "" {
			return nil, fmt.Errorf("%q is not TENANT:BYTES:MSGS", entry)
		}
		bytes, ok := parseSize(parts[1])
		msgs, err := strconv.ParseInt(strings.TrimSpace(parts[2]), 10, 64)
		if !ok || err != nil || msgs < 0 || bytes > quotaMax || msgs > quotaMax {
			return nil, fmt.Errorf("%q: both numbers must be in 0..%d", entry, int64(quotaMax))
		}
		if _, twice := quotas[parts[0]]; twice {
			return nil, fmt.Errorf("tenant %s has two quotas", parts[0])
		}
		quotas[parts[0]] = core.TenantQuota{BytesPerSec: bytes, MsgsPerSec: msgs}
	}
	return quotas, nil
}
