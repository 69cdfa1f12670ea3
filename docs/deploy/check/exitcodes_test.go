package check

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tableRow is a row of the README's table of exit codes.
var tableRow = regexp.MustCompile(`(?m)^\| ([0-9 /]+) \|.*\| ([^|]+) \|$`)

// exitCodes are the codes of the README's table, sorted: those after which the same command is to be run again, and
// those that need somebody.
func exitCodes(t *testing.T) (again, somebody []int32) {
	t.Helper()
	_, table, found := strings.Cut(string(read(t, "../../../README.md")), "\n## Exit codes\n")
	if !found {
		t.Fatal("the README has no chapter about exit codes")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		for _, text := range regexp.MustCompile(`[0-9]+`).FindAllString(row[1], -1) {
			code, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case code == 0:
			case row[2] == "yes":
				again = append(again, int32(code))
			default:
				somebody = append(somebody, int32(code))
			}
		}
	}
	slices.Sort(again)
	slices.Sort(somebody)
	if len(again) == 0 || len(somebody) == 0 {
		t.Fatalf("the README's table has %v and %v", again, somebody)
	}
	return again, somebody
}
