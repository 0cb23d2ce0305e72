// Keeps a copy of all objects under a prefix, and prints each change: go run . RESOURCE PREFIX
//
// docs/other-languages.md says how to generate the code that it imports. $WATCH_FANOUT_ADDRESS is the service, 127.0.0.1:50051 by
// default. The copy follows the service through restarts and network failures.
package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pb "watchfanout.example/watch/gen/watchfanout/v1"
)

// A watcher has the copy and its resume point, which is nil before the first state is complete.
type watcher struct {
	service  pb.ListWatchServiceClient
	objects  map[string]*pb.StoredObject
	revision *int64
	history  string
	failures int
}

// stream opens one stream, from the resume point on, and applies what it sends until it ends.
func (w *watcher) stream(ctx context.Context, resource, prefix string) error {
	request := &pb.WatchRequest{Resource: resource, Scope: &pb.WatchRequest_Prefix{Prefix: prefix}}
	if w.revision == nil {
		request.SendInitialEvents = true // The current state first, then each change after it.
	} else {
		request.AfterRevision, request.HistoryId = w.revision, w.history
	}
	stream, err := w.service.Watch(ctx, request)
	if err != nil {
		return err
	}
	var events []*pb.Event
	relisted := false
	var since time.Time // When the stream had its first response.
	for {
		response, err := stream.Recv()
		if err != nil {
			if !since.IsZero() && time.Since(since) >= 10*time.Second {
				w.failures = 0 // The stream has worked.
			}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		w.history = cmp.Or(response.HistoryId, w.history)
		events = append(events, response.Events...)
		relisted = relisted || response.InitialEventsEnd
		if response.Revision != nil { // It completes the batch, and is the resume point.
			w.apply(events, relisted, *response.Revision)
			w.revision, events, relisted = response.Revision, nil, false
		}
	}
}

// apply applies an atomic batch. The initial state is a batch too, and replaces all that the copy has.
func (w *watcher) apply(events []*pb.Event, relisted bool, revision int64) {
	if relisted {
		listed := map[string]bool{}
		for _, event := range events {
			listed[event.Object.Key] = true
		}
		for key := range w.objects {
			if !listed[key] {
				delete(w.objects, key)
				fmt.Println(revision, "DELETED", key)
			}
		}
	}
	for _, event := range events {
		object := event.Object
		before, existed := w.objects[object.Key]
		switch {
		case event.Type == pb.EventType_EVENT_TYPE_DELETED:
			delete(w.objects, object.Key)
			fmt.Println(object.ModRevision, "DELETED", object.Key)
			continue
		case !existed:
			fmt.Println(object.ModRevision, "ADDED", object.Key, string(object.Value))
		case !relisted || !proto.Equal(before, object):
			fmt.Println(object.ModRevision, "MODIFIED", object.Key, string(object.Value))
		}
		w.objects[object.Key] = object
	}
}

// details returns the reason of an error, and the delay that the service asks for.
func details(err error) (reason string, delay time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = detail.Reason
		case *errdetails.RetryInfo:
			delay = detail.RetryDelay.AsDuration()
		}
	}
	return reason, delay
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Usage: go run . RESOURCE PREFIX")
		os.Exit(2)
	}
	connection, err := grpc.NewClient(
		cmp.Or(os.Getenv("WATCH_FANOUT_ADDRESS"), "127.0.0.1:50051"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Notices a dead connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	w := &watcher{service: pb.NewListWatchServiceClient(connection), objects: map[string]*pb.StoredObject{}}
	for {
		err := w.stream(context.Background(), os.Args[1], os.Args[2])
		reason, delay := details(err)
		switch reason {
		case "INVALID_REQUEST", "UNKNOWN_RESOURCE", "PERMISSION_DENIED", "UNAUTHENTICATED":
			// A retry does not help. Every other failure is retried, also one without a reason: a lost connection.
			fmt.Fprintf(os.Stderr, "%s: %v\n", reason, err)
			os.Exit(1)
		case "REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST":
			w.revision = nil // The resume point is of no use any more.
		}
		backoff := min(200*time.Millisecond<<w.failures, 10*time.Second)
		w.failures = min(w.failures+1, 10)
		delay = max(delay, time.Duration((0.5+rand.Float64()/2)*float64(backoff)))
		then := "relisting"
		if w.revision != nil {
			then = fmt.Sprint("resuming after revision ", *w.revision)
		}
		fmt.Fprintf(os.Stderr, "%s: %v: %s in %v\n", cmp.Or(reason, "DISCONNECTED"), err, then, delay)
		time.Sleep(delay)
		connection.ResetConnectBackoff() // This loop has waited already.
	}
}
