// Judges a history by Porcupine: each name is a register behind a fence, whose tokens come from a lock.
//
//	porcupine HISTORY [REPORT]
//
// HISTORY has one JSON object per line; tests/faults/src/history.rs describes it. The program prints one line for each
// name, and ends with 1 if a history is not linearizable, with 2 if one could not be judged in time. It then draws the
// history of the first such name in the file REPORT.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long the search may take for one name.
const limit = 120 * time.Second

// entry is a line of a history.
type entry struct {
	At      int64
	Client  string
	Op      int64
	Event   string
	Kind    string
	Name    string
	Token   int64
	Value   string
	Outcome string
}

// input is an operation: an acquisition, a read or a write.
type input struct {
	kind  string
	token int64
	value string
}

// output is the result of an operation: "ok", "stale" or "unknown".
type output struct {
	outcome string
	value   string
}

// state is the state of one name.
type state struct {
	// The token of the last acquisition.
	acquired int64
	// The greatest token that the store has accepted.
	fence int64
	value string
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: step,
	DescribeOperation: func(in, out interface{}) string {
		i, o := in.(input), out.(output)
		return fmt.Sprintf("%s %d %q: %s %q", i.kind, i.token, i.value, o.outcome, o.value)
	},
	DescribeState: func(s interface{}) string { return fmt.Sprintf("%+v", s) },
}

func step(s, in, out interface{}) (bool, interface{}) {
	now, i, o := s.(state), in.(input), out.(output)
	if i.kind == "acquire" {
		ok := i.token > now.acquired
		now.acquired = i.token
		return ok, now
	}
	admitted := i.token >= now.fence
	if o.outcome == "stale" {
		return !admitted, now
	}
	if !admitted {
		// An operation with an unknown outcome may have been refused.
		return o.outcome == "unknown", now
	}
	if i.kind == "read" && o.outcome == "ok" && o.value != now.value {
		return false, now
	}
	now.fence = i.token
	if i.kind == "write" {
		now.value = i.value
	}
	return true, now
}

// read returns the operations of each name.
func read(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	type id struct {
		client string
		op     int64
	}
	calls, returns := map[id]entry{}, map[id]entry{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line entry
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		switch key := (id{line.Client, line.Op}); line.Event {
		case "call":
			calls[key] = line
		case "return":
			returns[key] = line
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	clients := map[string]int{}
	operations := map[string][]porcupine.Operation{}
	for key, call := range calls {
		operation, ok := operationOf(call, returns[key])
		if !ok {
			continue
		}
		if _, known := clients[call.Client]; !known {
			clients[call.Client] = len(clients)
		}
		operation.ClientId = clients[call.Client]
		name := call.Name
		if call.Kind == "acquire" {
			// A caller learns its slot from the answer.
			name = returns[key].Name
		}
		operations[name] = append(operations[name], operation)
	}
	for _, some := range operations {
		sort.Slice(some, func(a, b int) bool { return some[a].Call < some[b].Call })
	}
	return operations, nil
}

// operationOf returns false for an operation that says nothing: a release, or an acquisition without a token.
func operationOf(call, back entry) (porcupine.Operation, bool) {
	in := input{call.Kind, call.Token, call.Value}
	out := output{back.Outcome, back.Value}
	end := back.At
	switch {
	case call.Kind == "release":
		return porcupine.Operation{}, false
	case call.Kind == "acquire":
		in.token = back.Token
		if back.Outcome != "ok" {
			return porcupine.Operation{}, false
		}
	case back.Outcome != "ok" && back.Outcome != "stale":
		// It may happen later, or never.
		out.outcome, end = "unknown", math.MaxInt64
	}
	return porcupine.Operation{Input: in, Call: call.At, Output: out, Return: end}, true
}

func run(args []string) int {
	if len(args) < 1 {
		fmt.Fprintln(os.Stderr, "porcupine HISTORY [REPORT]")
		return 64
	}
	operations, err := read(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 64
	}
	names := make([]string, 0, len(operations))
	for name := range operations {
		names = append(names, name)
	}
	sort.Strings(names)
	code := 0
	for _, name := range names {
		result, info := porcupine.CheckOperationsVerbose(model, operations[name], limit)
		fmt.Printf("%s %d %s\n", name, len(operations[name]), result)
		if result == porcupine.Ok {
			continue
		}
		if code == 0 && len(args) > 1 {
			if err := porcupine.VisualizePath(model, info, args[1]); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		if result == porcupine.Illegal {
			code = 1
		} else if code == 0 {
			code = 2
		}
	}
	return code
}

func main() {
	os.Exit(run(os.Args[1:]))
}
