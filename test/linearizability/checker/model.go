package main

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Object is a key's value with etcd's revisions.
type Object struct {
	Key            string `json:"key"`
	Value          string `json:"value"`
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
	Version        int64  `json:"version"`
}

// Condition is that of a write: the key has this mod_revision, 0 if it does not exist.
type Condition struct {
	Key         string `json:"key"`
	ModRevision int64  `json:"modRevision"`
}

// Range is one key, or all keys with a prefix.
type Range struct {
	Key      string `json:"key"`
	IsPrefix bool   `json:"isPrefix"`
}

// Put is a key and its new value.
type Put struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Input is a call, each of which is a transaction: if the condition holds, all writes are done, at one revision.
type Input struct {
	Condition *Condition `json:"condition"`
	Puts      []Put      `json:"puts"`
	Deletes   []string   `json:"deletes"`
	Range     Range      `json:"range"`
	// The number of a write of unknown outcome, from 0 on.
	unknown int
}

// hasWritten is false where a deletion may have found nothing: its revision is of another write.
func (o Operation) hasWritten() bool {
	if o.Output == nil || !o.Output.Succeeded {
		return false
	}
	hasDeleted := o.Output.Before != nil && len(*o.Output.Before) > 0
	return len(o.Input.Puts) > 0 || (len(o.Input.Deletes) > 0 && hasDeleted)
}

func (i Input) isWrite() bool {
	return len(i.Puts)+len(i.Deletes) > 0
}

// Output is a response. What it does not contain is not checked.
type Output struct {
	// Whether the condition held.
	Succeeded bool `json:"succeeded"`
	// The store's revision after the call; 0: unknown.
	Revision int64 `json:"revision"`
	// Of the key that did not fulfil the condition.
	ModRevision *int64 `json:"modRevision"`
	// The objects of the range before and after the call.
	Before *[]Object `json:"before"`
	After  *[]Object `json:"after"`
}

// state is the store after an operation. Immutable.
type state struct {
	revision int64
	objects  []Object // in the order of their keys
	// The writes of unknown outcome that were done; and how many are behind everything, of those that were not.
	done, behind uint64
}

// store is a key-value store with etcd's revisions. Only recorded operations write to it, so each revision is exact.
type store struct {
	first, last int64
	// The revisions of writes whose responses say that something was written.
	claimed map[int64]bool
	// All objects in responses, by their mod_revision.
	read map[int64][]Object
}

func storeOf(history History) store {
	of := store{first: history.Revision, last: history.Revision}
	of.claimed, of.read = map[int64]bool{}, map[int64][]Object{}
	for _, each := range history.Operations {
		if each.Output == nil {
			continue
		}
		of.last = max(of.last, each.Output.Revision)
		if each.hasWritten() {
			of.claimed[each.Output.Revision] = true
		}
		for _, objects := range []*[]Object{each.Output.Before, each.Output.After} {
			if objects == nil {
				continue
			}
			for _, object := range *objects {
				of.read[object.ModRevision] = append(of.read[object.ModRevision], object)
			}
		}
	}
	return of
}

func (s store) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{revision: s.first} },
		Step: func(before, input, output any) (bool, any) {
			if output := output.(*Output); output != nil {
				return step(before.(state), input.(Input), *output)
			}
			return s.stepUnknown(before.(state), input.(Input))
		},
		Equal: func(one, other any) bool {
			a, b := one.(state), other.(state)
			return a.revision == b.revision && a.done == b.done && a.behind == b.behind &&
				slices.Equal(a.objects, b.objects)
		},
		Hash: func(of any) uint64 { return uint64(of.(state).revision) },
		DescribeOperation: func(input, output any) string {
			return describe(input.(Input), output.(*Output))
		},
		DescribeState: func(of any) string {
			return fmt.Sprintf("revision %d: %s", of.(state).revision, list(of.(state).objects))
		},
	}
}

// stepUnknown is a write of unknown outcome, which returns after all others. If it was done, then at a revision that no
// response has, and as it was read. If not, its place is behind everything else, in the order of their numbers: in any
// other order the end would be the same. Without these rules the search is exponential.
func (s store) stepUnknown(before state, input Input) (bool, state) {
	if before.revision == s.last && nextBehind(before) == input.unknown {
		after := before
		after.behind |= 1 << input.unknown
		return true, after
	}
	after := before.apply(input)
	after.done |= 1 << input.unknown
	isDone := before.behind == 0 && before.revision < s.last &&
		after.revision > before.revision && !s.claimed[after.revision]
	return isDone && s.isAsRead(after), after
}

// nextBehind is the lowest number of a write that has no place yet.
func nextBehind(of state) int {
	return bits.TrailingZeros64(^(of.done | of.behind))
}

// isAsRead compares what a write has put with what was read of its revision.
func (s store) isAsRead(after state) bool {
	for _, read := range s.read[after.revision] {
		if !slices.Contains(after.objects, read) {
			return false
		}
	}
	return true
}

func step(before state, input Input, output Output) (bool, state) {
	after := before.apply(input)
	isRight := before.behind == 0 && output.Succeeded == before.fulfils(input) &&
		(output.Revision == 0 || output.Revision == after.revision) &&
		(output.ModRevision == nil || *output.ModRevision == before.modRevision(input.Condition.Key)) &&
		(output.Before == nil || slices.Equal(*output.Before, before.in(input.Range))) &&
		(output.After == nil || slices.Equal(*output.After, after.in(input.Range)))
	return isRight, after
}

func (s state) fulfils(input Input) bool {
	return input.Condition == nil || s.modRevision(input.Condition.Key) == input.Condition.ModRevision
}

// apply writes if the condition holds.
func (s state) apply(input Input) state {
	if !s.fulfils(input) {
		return s
	}
	return s.write(input)
}

// write does all writes at the next revision. A deletion of an absent key takes none.
func (s state) write(input Input) state {
	revision := s.revision + 1
	kept := slices.DeleteFunc(slices.Clone(s.objects), func(object Object) bool {
		return slices.Contains(input.Deletes, object.Key)
	})
	if len(input.Puts) == 0 && len(kept) == len(s.objects) {
		return s
	}
	for _, put := range input.Puts {
		written := Object{put.Key, put.Value, revision, revision, 1}
		i, exists := slices.BinarySearchFunc(kept, put.Key, byKey)
		if exists {
			written.CreateRevision, written.Version = kept[i].CreateRevision, kept[i].Version+1
			kept[i] = written
		} else {
			kept = slices.Insert(kept, i, written)
		}
	}
	s.revision, s.objects = revision, kept
	return s
}

func (s state) modRevision(key string) int64 {
	if i, exists := slices.BinarySearchFunc(s.objects, key, byKey); exists {
		return s.objects[i].ModRevision
	}
	return 0
}

func (s state) in(of Range) []Object {
	var found []Object
	for _, object := range s.objects {
		if object.Key == of.Key || (of.IsPrefix && strings.HasPrefix(object.Key, of.Key)) {
			found = append(found, object)
		}
	}
	return found
}

func byKey(object Object, key string) int {
	return strings.Compare(object.Key, key)
}

func describe(input Input, output *Output) string {
	var parts []string
	if input.Condition != nil {
		parts = append(parts, fmt.Sprintf("if %s@%d", input.Condition.Key, input.Condition.ModRevision))
	}
	for _, put := range input.Puts {
		parts = append(parts, fmt.Sprintf("put %s=%s", put.Key, put.Value))
	}
	for _, key := range input.Deletes {
		parts = append(parts, "delete "+key)
	}
	if !input.isWrite() {
		parts = append(parts, fmt.Sprintf("read %q, prefix: %t", input.Range.Key, input.Range.IsPrefix))
	}
	called := strings.Join(parts, ", ")
	if output == nil {
		return called + " -> unknown"
	}
	result := fmt.Sprintf("%s -> %t @%d", called, output.Succeeded, output.Revision)
	if output.Before != nil {
		result += " before: " + list(*output.Before)
	}
	if output.After != nil {
		result += " after: " + list(*output.After)
	}
	return result
}

func list(objects []Object) string {
	var texts []string
	for _, object := range objects {
		texts = append(texts, fmt.Sprintf("%s=%s@%d", object.Key, object.Value, object.ModRevision))
	}
	return "[" + strings.Join(texts, " ") + "]"
}
