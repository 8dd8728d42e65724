package wire

import "strconv"

// enumName returns names[n], or a text with the number for one that is not named.
func enumName(names []string, n uint8) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return "unknown_" + strconv.Itoa(int(n))
}

// enumValue finds a name. An empty entry of names is a value without one.
func enumValue(names []string, name string) (uint8, bool) {
	if name == "" {
		return 0, false
	}
	for n, s := range names {
		if s == name {
			return uint8(n), true
		}
	}
	return 0, false
}

func (AckMode) names() []string { return ackModeNames }

func (Routing) names() []string { return routingNames }
