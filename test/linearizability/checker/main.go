// Checks with Porcupine whether recorded histories are linearizable: checker FILE...
//
// It prints one line of JSON per file, and writes a visualization of each history that is not linearizable beside it.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Maximum duration of the check of one history.
const timeout = 20 * time.Second

// Maximum number of writes of unknown outcome in a history: a state has a bit for each.
const maxUnknown = 64

// History is what a test has recorded.
type History struct {
	// The revision of the empty store at the beginning.
	Revision int64 `json:"revision"`
	// A request with an id that changes nothing takes no revision. In etcd the record of the id is a write.
	IdsTakeNoRevision bool        `json:"idsTakeNoRevision"`
	Operations        []Operation `json:"operations"`
}

// Operation is a call of a client, with its place among all calls and returns.
type Operation struct {
	Client int   `json:"client"`
	Call   int64 `json:"call"`
	// Without an output: when the client gave up, which is not an end.
	Return int64   `json:"return"`
	Input  Input   `json:"input"`
	Output *Output `json:"output"`
}

// Verdict is the result for one file.
type Verdict struct {
	// Ok, Illegal, or Unknown after the timeout.
	Result     porcupine.CheckResult `json:"result"`
	Operations int                   `json:"operations"`
	// The visualization, if it is not linearizable.
	Visualization string `json:"visualization,omitempty"`
}

func main() {
	for _, file := range os.Args[1:] {
		verdict, err := check(file)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(verdict)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func check(file string) (Verdict, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Verdict{}, err
	}
	var history History
	if err := json.Unmarshal(text, &history); err != nil {
		return Verdict{}, err
	}
	model := storeOf(history).model()
	all, err := operations(history)
	if err != nil {
		return Verdict{}, err
	}
	result, info := porcupine.CheckOperationsVerbose(model, all, timeout)
	verdict := Verdict{Result: result, Operations: len(history.Operations)}
	if result == porcupine.Illegal {
		verdict.Visualization = file + ".html"
		err = porcupine.VisualizePath(model, info, verdict.Visualization)
	}
	return verdict, err
}

func operations(history History) ([]porcupine.Operation, error) {
	var all []porcupine.Operation
	unknown := 0
	for _, each := range history.Operations {
		until := each.Return
		if each.Output == nil {
			until = math.MaxInt64
			each.Input.unknown = unknown
			unknown++
		}
		all = append(all, porcupine.Operation{
			ClientId: each.Client,
			Input:    each.Input,
			Call:     each.Call,
			Output:   each.Output,
			Return:   until,
		})
	}
	if unknown > maxUnknown {
		return nil, fmt.Errorf("%d writes have an unknown outcome, more than %d", unknown, maxUnknown)
	}
	return all, nil
}
