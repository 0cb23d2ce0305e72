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
	// The id of the lease that it is attached to; empty: none.
	Lease string `json:"lease"`
}

// Condition is that of a write: the key has this mod_revision, 0 if it does not exist.
type Condition struct {
	Key         string `json:"key"`
	ModRevision int64  `json:"modRevision"`
}

// Compare is a condition on one key, which has one of these.
type Compare struct {
	Key            string  `json:"key"`
	Exists         *bool   `json:"exists"`
	ModRevision    *int64  `json:"modRevision"`
	CreateRevision *int64  `json:"createRevision"`
	Value          *string `json:"value"`
}

// Compared is what a compare has found.
type Compared struct {
	Held bool `json:"held"`
	// Absent: the key does not exist.
	Object *Object `json:"object"`
}

// Range is one key, or all keys with a prefix, or several keys.
type Range struct {
	Key      string   `json:"key"`
	IsPrefix bool     `json:"isPrefix"`
	Keys     []string `json:"keys"`
}

// Put is a key and its new value, and the lease that it is attached to.
type Put struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Lease string `json:"lease"`
}

// Lease is what a call does with a lease: grant, keepAlive, revoke, or expire, which is what the store does by itself.
type Lease struct {
	ID   string `json:"id"`
	What string `json:"what"`
}

// Lock is the acquisition or the release of the one lock of a history, with its fencing token, or a write with the guard of
// that. It is released where its holder has stopped, also if that has lost it.
type Lock struct {
	What  string `json:"what"`
	Token int64  `json:"token"`
}

// Input is a call, each of which is a transaction: if all conditions hold, all writes are done, at one revision.
type Input struct {
	Condition *Condition `json:"condition"`
	Compares  []Compare  `json:"compares"`
	Puts      []Put      `json:"puts"`
	Deletes   []string   `json:"deletes"`
	// Deletes all keys with this prefix.
	DeletePrefix *string `json:"deletePrefix"`
	// The id of a request, which is applied once at most; empty: it is not remembered.
	RequestID string `json:"requestId"`
	// Nothing is written.
	ValidateOnly bool   `json:"validateOnly"`
	Range        Range  `json:"range"`
	Lease        *Lease `json:"lease"`
	Lock         *Lock  `json:"lock"`
	// The number of a write of unknown outcome, from 0 on.
	unknown int
}

// hasWritten is false where a deletion may have found nothing: its revision is of another write.
func (o Operation) hasWritten(idsTakeNoRevision bool) bool {
	if o.Output == nil || !o.Output.Succeeded || o.Input.ValidateOnly || !o.Input.isWrite() {
		return false
	}
	hasDeleted := o.Output.Before != nil && len(*o.Output.Before) > 0 ||
		o.Output.Deleted != nil && *o.Output.Deleted > 0
	return len(o.Input.Puts) > 0 || hasDeleted || o.Input.RequestID != "" && !idsTakeNoRevision
}

func (i Input) isWrite() bool {
	return len(i.Puts)+len(i.Deletes) > 0 || i.DeletePrefix != nil
}

// deletes says whether it deletes a key.
func (i Input) deletes(key string) bool {
	return slices.Contains(i.Deletes, key) || i.DeletePrefix != nil && strings.HasPrefix(key, *i.DeletePrefix)
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
	// What each compare has found.
	Compares *[]Compared `json:"compares"`
	// How many objects were deleted.
	Deleted *int64 `json:"deleted"`
	// The id was used for another request.
	IsReused bool `json:"isReused"`
	// There is no such lease.
	HasNoLease bool `json:"hasNoLease"`
}

// request is what the store remembers of a request with an id.
type request struct {
	id string
	// What it asked for.
	call string
	// How it was answered.
	revision      int64
	before, after []Object
	deleted       int64
}

// state is the store after an operation. Immutable.
type state struct {
	revision int64
	// That of the store.
	idsTakeNoRevision bool
	objects           []Object // in the order of their keys
	requests          []request
	leases            []string // in order
	// The token of the lock's holder, 0 if it is free; and the highest that it has had.
	holder, newest int64
	// The writes of unknown outcome that were done; and how many are behind everything, of those that were not.
	done, behind uint64
}

// store is a key-value store with etcd's revisions. Only recorded operations write to it, so each revision is exact.
type store struct {
	first, last int64
	// As that of the history.
	idsTakeNoRevision bool
	// The revisions of writes whose responses say that something was written, and the ids of their requests.
	claimed map[int64]string
	// All objects in responses, by their mod_revision.
	read map[int64][]Object
}

func storeOf(history History) store {
	of := store{first: history.Revision, last: history.Revision, idsTakeNoRevision: history.IdsTakeNoRevision}
	of.claimed, of.read = map[int64]string{}, map[int64][]Object{}
	for _, each := range history.Operations {
		if each.Output == nil {
			continue
		}
		of.last = max(of.last, each.Output.Revision)
		if each.hasWritten(of.idsTakeNoRevision) {
			of.claimed[each.Output.Revision] = each.Input.RequestID
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
		Init: func() any { return state{revision: s.first, idsTakeNoRevision: s.idsTakeNoRevision} },
		Step: func(before, input, output any) (bool, any) {
			if output := output.(*Output); output != nil {
				return step(before.(state), input.(Input), *output)
			}
			return s.stepUnknown(before.(state), input.(Input))
		},
		Equal: func(one, other any) bool {
			a, b := one.(state), other.(state)
			return a.revision == b.revision && a.done == b.done && a.behind == b.behind &&
				slices.Equal(a.objects, b.objects) && slices.EqualFunc(a.requests, b.requests, isSame) &&
				slices.Equal(a.leases, b.leases) && a.holder == b.holder && a.newest == b.newest
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
// response has, and as it was read; or at none, if only its id is remembered. If not, its place is behind everything else, in the order of their numbers: in any
// other order the end would be the same. Without these rules the search is exponential.
func (s store) stepUnknown(before state, input Input) (bool, state) {
	if before.revision == s.last && nextBehind(before) == input.unknown {
		after := before
		after.behind |= 1 << input.unknown
		return true, after
	}
	after := before.apply(input)
	if input.Lease != nil {
		after = before.applyLease(*input.Lease)
	}
	after.done |= 1 << input.unknown
	if before.behind == 0 && after.revision == before.revision && len(after.requests) > len(before.requests) {
		return true, after
	}
	claimed, isClaimed := s.claimed[after.revision]
	// The answer to a repetition has the revision of the first request.
	mayBe := !isClaimed || claimed != "" && claimed == input.RequestID
	isDone := before.behind == 0 && before.revision < s.last && after.revision > before.revision && mayBe
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
	if known, is := before.request(input); is {
		return before.behind == 0 && known.isAnswered(input, output), before
	}
	if lock := input.Lock; lock != nil {
		return before.stepLock(*lock, output.Succeeded)
	}
	if lease := input.Lease; lease != nil {
		// A lease that has ended before it expires was revoked.
		isRight := before.behind == 0 && (lease.What == "grant" || lease.What == "expire" ||
			output.HasNoLease != before.hasLease(lease.ID))
		return isRight, before.applyLease(*lease)
	}
	if before.lacksLease(input) || output.HasNoLease {
		return before.behind == 0 && before.lacksLease(input) && output.HasNoLease, before
	}
	after := before.apply(input)
	deleted := before.deleted(input)
	isRight := before.behind == 0 && !output.IsReused && output.Succeeded == before.fulfils(input) &&
		(output.Revision == 0 || output.Revision == after.revision) &&
		(output.ModRevision == nil || *output.ModRevision == before.modRevision(input.Condition.Key)) &&
		(output.Before == nil || slices.Equal(*output.Before, before.in(input.Range))) &&
		(output.After == nil || slices.Equal(*output.After, after.in(input.Range))) &&
		(output.Deleted == nil || *output.Deleted == deleted) &&
		(output.Compares == nil || slices.EqualFunc(input.Compares, *output.Compares, before.isFound))
	return isRight, after
}

// isAnswered compares the response to a request that was applied before: it is that to the first one.
func (r request) isAnswered(input Input, output Output) bool {
	if r.call != called(input) {
		return output.IsReused
	}
	return !output.IsReused && output.Succeeded &&
		(output.Revision == 0 || output.Revision == r.revision) &&
		(output.Before == nil || slices.Equal(*output.Before, r.before)) &&
		(output.After == nil || slices.Equal(*output.After, r.after)) &&
		(output.Deleted == nil || *output.Deleted == r.deleted)
}

func isSame(one, other request) bool {
	return one.id == other.id && one.revision == other.revision && one.call == other.call
}

// request is what is remembered of an id.
func (s state) request(input Input) (request, bool) {
	i := slices.IndexFunc(s.requests, func(one request) bool { return one.id == input.RequestID })
	if input.RequestID == "" || input.ValidateOnly || i < 0 {
		return request{}, false
	}
	return s.requests[i], true
}

func (s state) fulfils(input Input) bool {
	if input.Condition != nil && s.modRevision(input.Condition.Key) != input.Condition.ModRevision {
		return false
	}
	return !slices.ContainsFunc(input.Compares, func(each Compare) bool { return !s.holds(each) })
}

func (s state) holds(compare Compare) bool {
	object := s.object(compare.Key)
	switch {
	case compare.Exists != nil:
		return *compare.Exists == (object != nil)
	case compare.Value != nil:
		return object != nil && object.Value == *compare.Value
	case object == nil:
		return compare.ModRevision != nil && *compare.ModRevision == 0 ||
			compare.CreateRevision != nil && *compare.CreateRevision == 0
	case compare.ModRevision != nil:
		return object.ModRevision == *compare.ModRevision
	default:
		return object.CreateRevision == *compare.CreateRevision
	}
}

// isFound says whether a compare has found what is there.
func (s state) isFound(compare Compare, found Compared) bool {
	object := s.object(compare.Key)
	return found.Held == s.holds(compare) && (found.Object == nil) == (object == nil) &&
		(object == nil || *found.Object == *object)
}

// apply writes if the conditions hold and the request was not applied before.
func (s state) apply(input Input) state {
	if _, isKnown := s.request(input); isKnown || input.ValidateOnly || !s.fulfils(input) || s.lacksLease(input) {
		return s
	}
	after := s.write(input)
	if input.RequestID != "" && input.isWrite() {
		after.requests = append(slices.Clone(s.requests), request{
			id: input.RequestID, call: called(input), revision: after.revision,
			before: s.in(input.Range), after: after.in(input.Range), deleted: s.deleted(input),
		})
	}
	return after
}

// write does all writes at the next revision. A deletion of an absent key takes none, unless the request is remembered.
func (s state) write(input Input) state {
	revision := s.revision + 1
	kept := slices.DeleteFunc(slices.Clone(s.objects), func(object Object) bool {
		return input.deletes(object.Key)
	})
	isRemembered := input.isWrite() && input.RequestID != "" && !s.idsTakeNoRevision
	if len(input.Puts) == 0 && len(kept) == len(s.objects) && !isRemembered {
		return s
	}
	for _, put := range input.Puts {
		written := Object{put.Key, put.Value, revision, revision, 1, put.Lease}
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

func (s state) hasLease(id string) bool {
	_, exists := slices.BinarySearch(s.leases, id)
	return exists
}

// lacksLease says whether a put names a lease that there is not.
func (s state) lacksLease(input Input) bool {
	return slices.ContainsFunc(input.Puts, func(put Put) bool {
		return put.Lease != "" && !s.hasLease(put.Lease)
	})
}

// applyLease begins or ends a lease. What is attached to it is deleted at one revision, if there is anything.
func (s state) applyLease(lease Lease) state {
	i, exists := slices.BinarySearch(s.leases, lease.ID)
	if lease.What == "keepAlive" || exists == (lease.What == "grant") {
		return s
	}
	if lease.What == "grant" {
		s.leases = slices.Insert(slices.Clone(s.leases), i, lease.ID)
		return s
	}
	s.leases = slices.Delete(slices.Clone(s.leases), i, i+1)
	kept := slices.DeleteFunc(slices.Clone(s.objects), func(object Object) bool {
		return object.Lease == lease.ID
	})
	if len(kept) < len(s.objects) {
		s.revision, s.objects = s.revision+1, kept
	}
	return s
}

func (s state) stepLock(lock Lock, succeeded bool) (bool, state) {
	after := s
	if lock.What == "write" {
		return succeeded == (s.holder == lock.Token), s
	}
	if lock.What == "release" {
		after.holder = 0
		return s.holder == lock.Token, after
	}
	after.holder, after.newest = lock.Token, lock.Token
	return s.holder == 0 && lock.Token > s.newest, after
}

// deleted counts what a call deletes.
func (s state) deleted(input Input) int64 {
	var count int64
	for _, object := range s.objects {
		if input.deletes(object.Key) {
			count++
		}
	}
	return count
}

func (s state) object(key string) *Object {
	if i, exists := slices.BinarySearchFunc(s.objects, key, byKey); exists {
		return &s.objects[i]
	}
	return nil
}

func (s state) modRevision(key string) int64 {
	if object := s.object(key); object != nil {
		return object.ModRevision
	}
	return 0
}

func (s state) in(of Range) []Object {
	var found []Object
	for _, object := range s.objects {
		isIn := object.Key == of.Key || of.IsPrefix && strings.HasPrefix(object.Key, of.Key)
		if isIn || slices.Contains(of.Keys, object.Key) {
			found = append(found, object)
		}
	}
	return found
}

func byKey(object Object, key string) int {
	return strings.Compare(object.Key, key)
}

// called is a call in words; equal for equal calls.
func called(input Input) string {
	var parts []string
	if input.Condition != nil {
		parts = append(parts, fmt.Sprintf("if %s@%d", input.Condition.Key, input.Condition.ModRevision))
	}
	for _, each := range input.Compares {
		parts = append(parts, fmt.Sprintf("if %s", each))
	}
	for _, put := range input.Puts {
		text := fmt.Sprintf("put %s=%s", put.Key, put.Value)
		if put.Lease != "" {
			text += " under " + put.Lease
		}
		parts = append(parts, text)
	}
	if input.DeletePrefix != nil {
		parts = append(parts, fmt.Sprintf("delete %s*", *input.DeletePrefix))
	}
	for _, key := range input.Deletes {
		parts = append(parts, "delete "+key)
	}
	if input.Lock != nil {
		parts = append(parts, fmt.Sprintf("%s %d", input.Lock.What, input.Lock.Token))
	} else if input.Lease != nil {
		parts = append(parts, input.Lease.What+" "+input.Lease.ID)
	} else if !input.isWrite() {
		of := input.Range
		parts = append(parts, fmt.Sprintf("read %q %v, prefix: %t", of.Key, of.Keys, of.IsPrefix))
	}
	if input.ValidateOnly {
		parts = append(parts, "validate only")
	}
	return strings.Join(parts, ", ")
}

func (c Compare) String() string {
	switch {
	case c.Exists != nil:
		return fmt.Sprintf("%s exists: %t", c.Key, *c.Exists)
	case c.Value != nil:
		return fmt.Sprintf("%s=%s", c.Key, *c.Value)
	case c.ModRevision != nil:
		return fmt.Sprintf("%s@%d", c.Key, *c.ModRevision)
	default:
		return fmt.Sprintf("%s created @%d", c.Key, *c.CreateRevision)
	}
}

func describe(input Input, output *Output) string {
	text := called(input)
	if input.RequestID != "" {
		text += " (request " + input.RequestID + ")"
	}
	if output == nil {
		return text + " -> unknown"
	}
	if output.IsReused {
		return text + " -> another request"
	}
	if output.HasNoLease {
		return text + " -> no such lease"
	}
	result := fmt.Sprintf("%s -> %t @%d", text, output.Succeeded, output.Revision)
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
