// Uses etcd's API through clientv3 and the packages beside it, and prints what each step has shown, without what
// differs between two stores. The same lines must come from etcd and from any server in front of it.
//
//	etcd-go ENDPOINT           runs the steps
//	etcd-go ENDPOINT PREFIX    prints each event below the prefix, until the key PREFIXend is written
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/naming/resolver"
	"go.etcd.io/etcd/client/v3/ordering"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Revisions are printed as their distance from this one.
var base int64

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func say(format string, values ...any) { fmt.Printf(format+"\n", values...) }

func events(events []*clientv3.Event) string {
	var texts []string
	for _, e := range events {
		text := fmt.Sprintf("%s %s=%s at %d version %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision-base, e.Kv.Version)
		if e.PrevKv != nil {
			text += fmt.Sprintf(" before %s", e.PrevKv.Value)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// collect reads events from a watch until there are that many.
func collect(watch clientv3.WatchChan, count int) string {
	var all []*clientv3.Event
	for len(all) < count {
		response, ok := <-watch
		if !ok || response.Err() != nil {
			log.Fatal("the watch has ended: ", response.Err())
		}
		all = append(all, response.Events...)
	}
	return events(all)
}

func keys(ctx context.Context, client *clientv3.Client) {
	for _, key := range []string{"a", "b", "c"} {
		must(client.Put(ctx, "kv/"+key, key+"1"))
	}
	second := must(client.Put(ctx, "kv/b", "b2", clientv3.WithPrevKV()))
	say("put at %d, before %s", second.Header.Revision-base, second.PrevKv.Value)
	all := must(client.Get(ctx, "kv/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(2)))
	say("get %s %s, more %t, count %d, at %d", all.Kvs[0].Value, all.Kvs[1].Value, all.More, all.Count, all.Header.Revision-base)
	past := must(client.Get(ctx, "kv/b", clientv3.WithRev(second.Header.Revision-1), clientv3.WithSerializable()))
	say("past %s", past.Kvs[0].Value)
	only := must(client.Get(ctx, "kv/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(second.Header.Revision)))
	say("keys %s, value %q", only.Kvs[0].Key, only.Kvs[0].Value)
	say("count %d", must(client.Get(ctx, "kv/", clientv3.WithFromKey(), clientv3.WithCountOnly())).Count)
	txn := must(client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value("kv/b"), "=", "b2"), clientv3.Compare(clientv3.Version("kv/a"), ">", 0)).
		Then(clientv3.OpPut("kv/d", "d1"), clientv3.OpGet("kv/b"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete("kv/a")}, nil)).
		Commit())
	say("txn %t, %d responses, read %s", txn.Succeeded, len(txn.Responses), txn.Responses[1].GetResponseRange().Kvs[0].Value)
	say("deleted %d", must(client.Delete(ctx, "kv/", clientv3.WithPrefix(), clientv3.WithPrevKV())).Deleted)
	check(func() error { _, err := client.Compact(ctx, second.Header.Revision); return err }())
	_, err := client.Get(ctx, "kv/b", clientv3.WithRev(second.Header.Revision-1))
	say("compacted: %t %v", errors.Is(err, rpctypes.ErrCompacted), err)
	_, err = client.Put(ctx, "", "")
	say("refused: %v", err)
	for response := range client.Watch(ctx, "kv/b", clientv3.WithRev(base)) {
		say("watch of the compacted: %d %v", response.CompactRevision-base, response.Err())
	}
}

func watches(ctx context.Context, client *clientv3.Client) {
	created := client.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	say("created %t", (<-created).Created)
	noDeletes := client.Watch(ctx, "w/1", clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	<-noDeletes
	first := must(client.Put(ctx, "w/1", "a")).Header.Revision
	must(client.Txn(ctx).Then(clientv3.OpPut("w/1", "b"), clientv3.OpPut("w/2", strings.Repeat("x", 10))).Commit())
	must(client.Delete(ctx, "w/1"))
	must(client.Put(ctx, "w/1", "c"))
	say("watch: %s", collect(created, 5))
	say("filtered: %s", collect(noDeletes, 3))
	say("past: %s", collect(client.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFragment()), 5))
	check(client.RequestProgress(ctx))
	for response := range created {
		if response.IsProgressNotify() {
			say("progress at %d", response.Header.Revision-base)
			break
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	ended := client.Watch(canceled, "w/")
	cancel()
	for range ended {
	}
	say("canceled")
}

func leases(ctx context.Context, client *clientv3.Client) {
	watch := client.Watch(ctx, "lease/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	kept := must(client.Grant(ctx, 3))
	must(client.Put(ctx, "lease/kept", "1", clientv3.WithLease(kept.ID)))
	alive, cancel := context.WithCancel(ctx)
	responses := must(client.KeepAlive(alive, kept.ID))
	for range 6 {
		if response := <-responses; response == nil || response.TTL != 3 {
			log.Fatal("a lease was lost: ", response)
		}
	}
	cancel()
	say("alive after 2 TTLs: %d", must(client.Get(ctx, "lease/kept")).Count)
	once := must(client.KeepAliveOnce(ctx, kept.ID))
	left := must(client.TimeToLive(ctx, kept.ID, clientv3.WithAttachedKeys()))
	say("once %d, keys %s, granted %d", once.TTL, left.Keys, left.GrantedTTL)
	say("leases %d", len(must(client.Leases(ctx)).Leases))
	say("expired: %s", collect(watch, 2))
	revoked := must(client.Grant(ctx, 60))
	must(client.Put(ctx, "lease/revoked", "1", clientv3.WithLease(revoked.ID)))
	must(client.Revoke(ctx, revoked.ID))
	say("revoked: %s", collect(watch, 2))
	_, err := client.KeepAliveOnce(ctx, revoked.ID)
	say("keep-alive of the revoked: %v", err)
	_, err = client.Put(ctx, "lease/none", "1", clientv3.WithLease(revoked.ID))
	say("put with the revoked: %v", err)
}

func locks(ctx context.Context, client *clientv3.Client) {
	one := must(concurrency.NewSession(client, concurrency.WithTTL(5)))
	other := must(concurrency.NewSession(client, concurrency.WithTTL(5)))
	mutex, rival := concurrency.NewMutex(one, "lock/"), concurrency.NewMutex(other, "lock/")
	check(mutex.Lock(ctx))
	say("try: %v", rival.TryLock(ctx))
	locked := make(chan error)
	go func() { locked <- rival.Lock(ctx) }()
	check(mutex.Unlock(ctx))
	check(<-locked)
	say("locked by the other")
	check(other.Close())
	check(mutex.Lock(ctx))
	say("locked after its session")

	third := must(concurrency.NewSession(client, concurrency.WithTTL(5)))
	election, candidate := concurrency.NewElection(one, "leader/"), concurrency.NewElection(third, "leader/")
	observed := election.Observe(ctx)
	check(election.Campaign(ctx, "one"))
	say("observed %s", (<-observed).Kvs[0].Value)
	elected := make(chan error)
	go func() { elected <- candidate.Campaign(ctx, "two") }()
	check(election.Proclaim(ctx, "one again"))
	say("observed %s", (<-observed).Kvs[0].Value)
	check(election.Resign(ctx))
	check(<-elected)
	say("leader %s, observed %s", must(candidate.Leader(ctx)).Kvs[0].Value, (<-observed).Kvs[0].Value)

	var done sync.WaitGroup
	for range 4 {
		done.Add(1)
		go func() {
			defer done.Done()
			for range 5 {
				must(concurrency.NewSTM(client, func(stm concurrency.STM) error {
					stm.Put("stm/count", stm.Get("stm/count")+"x")
					return nil
				}))
			}
		}()
	}
	done.Wait()
	say("counted %d", len(must(client.Get(ctx, "stm/count")).Kvs[0].Value))
	check(one.Close())
	check(third.Close())
}

func names(ctx context.Context, client *clientv3.Client) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { check(server.Serve(listener)) }()
	manager := must(endpoints.NewManager(client, "names/health"))
	updates := must(manager.NewWatchChannel(ctx))
	check(manager.AddEndpoint(ctx, "names/health/1", endpoints.Endpoint{Addr: listener.Addr().String()}))
	for update := range updates {
		if len(update) > 0 {
			say("endpoint %s", update[0].Key)
			break
		}
	}
	builder := must(resolver.NewBuilder(client))
	connection := must(grpc.NewClient("etcd:///names/health", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials())))
	answer := must(grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)))
	say("resolved: %s", answer.Status)
	check(connection.Close())
	server.Stop()
	check(manager.DeleteEndpoint(ctx, "names/health/1"))
	say("endpoints %d", len(must(manager.List(ctx))))
}

func packages(ctx context.Context, client *clientv3.Client, endpoint string) {
	within := namespace.NewKV(client.KV, "space/")
	must(within.Put(ctx, "k", "v"))
	watch := namespace.NewWatcher(client.Watcher, "space/").Watch(ctx, "k", clientv3.WithRev(must(within.Get(ctx, "k")).Kvs[0].ModRevision))
	say("namespace: %s", collect(watch, 1))
	ordered := ordering.NewKV(client.KV, func(clientv3.Op, clientv3.OpResponse, int64) error { return errors.New("an older response") })
	must(ordered.Put(ctx, "ordered", "v"))
	say("ordered %d", must(ordered.Get(ctx, "ordered", clientv3.WithSerializable())).Count)
	leased, closeLeasing, err := leasing.NewKV(client, "leasing/")
	check(err)
	must(leased.Put(ctx, "leased", "1"))
	must(leased.Get(ctx, "leased"))
	must(client.Put(ctx, "unrelated", "1"))
	must(leased.Put(ctx, "leased", "2"))
	say("leasing %s", must(leased.Get(ctx, "leased")).Kvs[0].Value)
	closeLeasing()
	must(client.Put(ctx, "mirror/1", "v"))
	syncer := mirror.NewSyncer(client, "mirror/", 0)
	pages, failures := syncer.SyncBase(ctx)
	for page := range pages {
		say("mirrored %d", len(page.Kvs))
	}
	check(<-failures)
	updates := syncer.SyncUpdates(ctx)
	must(client.Put(ctx, "mirror/2", "v"))
	say("mirror: %s", collect(updates, 1))

	say("members %d", len(must(client.MemberList(ctx)).Members))
	status := must(client.Status(ctx, endpoint))
	say("leads %t, errors %d", status.Leader == status.Header.MemberId, len(status.Errors))
	say("alarms %d", len(must(client.AlarmList(ctx)).Alarms))
	say("hash is of the revision: %t", must(client.HashKV(ctx, endpoint, 0)).Header.Revision == must(client.Get(ctx, "k")).Header.Revision)
	snapshot := must(client.Snapshot(ctx))
	var size int
	for buffer := make([]byte, 65536); ; {
		n, err := snapshot.Read(buffer)
		size += n
		if err != nil {
			break
		}
	}
	say("snapshot: %t", size > 20_000)
	_, err = client.UserGet(ctx, "nobody")
	say("user: %v", err)
	must(client.RoleAdd(ctx, "role"))
	must(client.RoleGrantPermission(ctx, "role", "k", "l", clientv3.PermissionType(clientv3.PermRead)))
	say("roles %v", must(client.RoleList(ctx)).Roles)
}

// follow prints all events below the prefix, also those of the time without a connection, until the last key.
func follow(ctx context.Context, client *clientv3.Client, prefix string) {
	var next int64 = 1
	for {
		for response := range client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(next)) {
			for _, e := range response.Events {
				next = e.Kv.ModRevision + 1
				say("%s %s=%s at %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
				if string(e.Kv.Key) == prefix+"end" {
					return
				}
			}
			if err := response.Err(); err != nil {
				log.Print(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	endpoint := os.Args[1]
	client := must(clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 20 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if len(os.Args) > 2 {
		follow(ctx, client, os.Args[2])
		return
	}
	base = must(client.Put(ctx, "base", "")).Header.Revision
	keys(ctx, client)
	watches(ctx, client)
	leases(ctx, client)
	locks(ctx, client)
	names(ctx, client)
	packages(ctx, client, endpoint)
	check(client.Close())
}
