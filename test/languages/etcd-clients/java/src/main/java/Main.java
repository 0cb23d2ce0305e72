import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.election.LeaderKey;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Uses etcd's API through jetcd, and prints what each step has shown, without what differs between two stores. The same
 * lines must come from etcd and from any server in front of it.
 *
 * <p>{@code Main ENDPOINT} runs the steps; {@code Main ENDPOINT PREFIX} prints each event below the prefix, until the key
 * PREFIXend is written.
 */
public final class Main {
  private static long base;

  public static void main(String[] args) throws Exception {
    try (Client client =
        Client.builder().endpoints("http://" + args[0]).keepaliveTime(Duration.ofSeconds(10)).build()) {
      if (args.length > 1) {
        follow(client, args[1]);
      } else {
        base = wait(client.getKVClient().put(bytes("base"), bytes(""))).getHeader().getRevision();
        keys(client);
        watches(client);
        leases(client);
        locks(client);
      }
    }
    System.exit(0);
  }

  private static void keys(Client client) throws Exception {
    KV kv = client.getKVClient();
    for (String key : new String[] {"a", "b", "c"}) {
      wait(kv.put(bytes("kv/" + key), bytes(key)));
    }
    var all = wait(kv.get(bytes("kv/"), GetOption.builder().isPrefix(true).withLimit(2).build()));
    say("get %s, more %s, count %d, at %d", all.getKvs().get(1).getValue(), all.isMore(), all.getCount(),
        all.getHeader().getRevision() - base);
    var txn = wait(kv.txn()
        .If(new Cmp(bytes("kv/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("a"))))
        .Then(Op.put(bytes("kv/a"), bytes("a2"), PutOption.DEFAULT), Op.get(bytes("kv/a"), GetOption.DEFAULT))
        .commit());
    say("txn %s, read %s", txn.isSucceeded(), txn.getGetResponses().get(0).getKvs().get(0).getValue());
    long revision = txn.getHeader().getRevision();
    say("past %s", wait(kv.get(bytes("kv/a"), GetOption.builder().withRevision(revision - 1).build()))
        .getKvs().get(0).getValue());
    say("deleted %d", wait(kv.delete(bytes("kv/"), DeleteOption.builder().isPrefix(true).build())).getDeleted());
    wait(kv.compact(revision));
    say("compacted: %s", refused(kv.get(bytes("kv/a"), GetOption.builder().withRevision(revision - 1).build())));
    say("refused: %s", refused(kv.put(bytes(""), bytes(""))));
  }

  private static void watches(Client client) throws Exception {
    KV kv = client.getKVClient();
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    CountDownLatch created = new CountDownLatch(1);
    WatchOption options =
        WatchOption.builder().isPrefix(true).withPrevKV(true).withCreateNotify(true).build();
    try (var watcher = client.getWatchClient().watch(bytes("w/"), options, Watch.listener(response -> {
      if (response.isCreatedNotify()) {
        created.countDown();
      }
      for (WatchEvent event : response.getEvents()) {
        seen.add(text(event) + ", before " + event.getPrevKV().getValue());
      }
    }))) {
      created.await();
      wait(kv.put(bytes("w/1"), bytes("a")));
      wait(kv.put(bytes("w/1"), bytes("b")));
      wait(kv.delete(bytes("w/1")));
      for (int i = 0; i < 3; i++) {
        say("watch: %s", seen.take());
      }
    }
    CompletableFuture<Throwable> failure = new CompletableFuture<>();
    try (var watcher = client.getWatchClient().watch(bytes("w/"), WatchOption.builder().withRevision(1).build(),
        Watch.listener(response -> {}, failure::complete))) {
      say("watch of the compacted: %s", wait(failure).getMessage());
    }
  }

  private static void leases(Client client) throws Exception {
    KV kv = client.getKVClient();
    Lease leases = client.getLeaseClient();
    long id = wait(leases.grant(3)).getID();
    wait(kv.put(bytes("lease/1"), bytes("v"), PutOption.builder().withLeaseId(id).build()));
    CountDownLatch renewed = new CountDownLatch(6);
    try (var alive = leases.keepAlive(id, new StreamObserver<LeaseKeepAliveResponse>() {
      @Override
      public void onNext(LeaseKeepAliveResponse response) {
        renewed.countDown();
      }

      @Override
      public void onError(Throwable error) {
        System.err.println(error);
      }

      @Override
      public void onCompleted() {}
    })) {
      say("renewed %s", renewed.await(30, TimeUnit.SECONDS));
    }
    var left = wait(leases.timeToLive(id, LeaseOption.builder().withAttachedKeys().build()));
    say("lease %d, keys %s, once %d", left.getGrantedTTL(), left.getKeys(), wait(leases.keepAliveOnce(id)).getTTL());
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    try (var watcher = client.getWatchClient().watch(bytes("lease/1"), Watch.listener(response -> {
      response.getEvents().forEach(event -> seen.add(text(event)));
    }))) {
      say("expired: %s", seen.take());
    }
    say("keep-alive of the expired: %s", refused(leases.keepAliveOnce(id)));
  }

  private static void locks(Client client) throws Exception {
    Lease leases = client.getLeaseClient();
    long one = wait(leases.grant(60)).getID();
    long other = wait(leases.grant(60)).getID();
    var lock = client.getLockClient();
    ByteSequence key = wait(lock.lock(bytes("lock"), one)).getKey();
    var rival = lock.lock(bytes("lock"), other);
    say("locked, the other one: %s", rival.isDone());
    wait(lock.unlock(key));
    wait(rival);
    say("locked by the other one");
    wait(leases.revoke(other));
    wait(lock.lock(bytes("lock"), one));
    say("locked after its lease");

    Election election = client.getElectionClient();
    BlockingQueue<String> leaders = new LinkedBlockingQueue<>();
    long candidate = wait(leases.grant(60)).getID();
    LeaderKey leader = wait(election.campaign(bytes("leader"), one, bytes("one"))).getLeader();
    election.observe(bytes("leader"), new Election.Listener() {
      @Override
      public void onNext(io.etcd.jetcd.election.LeaderResponse response) {
        leaders.add(response.getKv().getValue().toString());
      }

      @Override
      public void onError(Throwable error) {
        leaders.add(error.toString());
      }

      @Override
      public void onCompleted() {}
    });
    say("observed %s", leaders.take());
    var second = election.campaign(bytes("leader"), candidate, bytes("two"));
    wait(election.proclaim(leader, bytes("one again")));
    say("observed %s", leaders.take());
    wait(election.resign(leader));
    wait(second);
    say("observed %s, leader %s", leaders.take(), wait(election.leader(bytes("leader"))).getKv().getValue());
  }

  private static void follow(Client client, String prefix) throws Exception {
    CountDownLatch ended = new CountDownLatch(1);
    WatchOption options = WatchOption.builder().isPrefix(true).withRevision(1).build();
    client.getWatchClient().watch(bytes(prefix), options, Watch.listener(response -> {
      for (WatchEvent event : response.getEvents()) {
        var kv = event.getKeyValue();
        say("%s %s=%s at %d", event.getEventType(), kv.getKey(), kv.getValue(), kv.getModRevision());
        if (kv.getKey().toString().equals(prefix + "end")) {
          ended.countDown();
        }
      }
    }, (Throwable error) -> System.err.println(error)));
    ended.await();
  }

  private static String text(WatchEvent event) {
    var kv = event.getKeyValue();
    return String.format("%s %s=%s at %d", event.getEventType(), kv.getKey(), kv.getValue(), kv.getModRevision() - base);
  }

  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, StandardCharsets.UTF_8);
  }

  private static <T> T wait(CompletableFuture<T> future) throws Exception {
    return future.get(30, TimeUnit.SECONDS);
  }

  private static String refused(CompletableFuture<?> future) throws Exception {
    try {
      wait(future);
      return "nothing";
    } catch (java.util.concurrent.ExecutionException error) {
      return error.getCause().getMessage();
    }
  }

  private static synchronized void say(String format, Object... values) {
    System.out.printf(format + "%n", values);
    System.out.flush();
  }
}
