import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import watchfanout.v1.ListWatchServiceGrpc;
import watchfanout.v1.ListWatchServiceGrpc.ListWatchServiceBlockingStub;
import watchfanout.v1.ListWatchServiceOuterClass.Event;
import watchfanout.v1.ListWatchServiceOuterClass.EventType;
import watchfanout.v1.ListWatchServiceOuterClass.WatchRequest;
import watchfanout.v1.ListWatchServiceOuterClass.WatchResponse;
import watchfanout.v1.Object.StoredObject;

/**
 * Keeps a copy of all objects under a prefix, and prints each change: {@code Watch RESOURCE PREFIX}.
 *
 * <p>docs/other-languages.md says how to build and run it. $WATCH_FANOUT_ADDRESS is the service, 127.0.0.1:50051 by default. The copy
 * follows the service through restarts and network failures.
 */
public final class Watch {
  /** A resume point is of no use any more: the current state has to be read again. */
  private static final Set<String> RELIST = Set.of("REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST");

  /** A retry does not help. Every other failure is retried, also one without a reason, such as a lost connection. */
  private static final Set<String> FATAL =
      Set.of("INVALID_REQUEST", "UNKNOWN_RESOURCE", "PERMISSION_DENIED", "UNAUTHENTICATED");

  private final ListWatchServiceBlockingStub service;
  private final Map<String, StoredObject> copy = new HashMap<>();

  /** The resume point; absent before the first state is complete. */
  private Optional<Long> revision = Optional.empty();

  private String history = "";
  private int failures;

  /** When the stream had its first response, in nanoseconds; absent before. */
  private Optional<Long> since = Optional.empty();

  private Watch(ListWatchServiceBlockingStub service) {
    this.service = service;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("Usage: Watch RESOURCE PREFIX");
      System.exit(2);
    }
    var address = Optional.ofNullable(System.getenv("WATCH_FANOUT_ADDRESS")).orElse("127.0.0.1:50051");
    var channel =
        Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
            .keepAliveTime(10, TimeUnit.SECONDS) // Pings notice a dead connection.
            .keepAliveTimeout(5, TimeUnit.SECONDS)
            .build();
    new Watch(ListWatchServiceGrpc.newBlockingStub(channel)).run(channel, args[0], args[1]);
  }

  private void run(ManagedChannel channel, String resource, String prefix) throws Exception {
    while (true) {
      var error = new ErrorDetails("DISCONNECTED", 0, "The stream has ended.");
      try {
        stream(resource, prefix);
      } catch (StatusRuntimeException failure) {
        error = ErrorDetails.of(failure);
      }
      if (FATAL.contains(error.reason)) {
        System.err.println(error.reason + ": " + error.message);
        System.exit(1);
      }
      if (RELIST.contains(error.reason)) revision = Optional.empty();
      var worked = since.map(start -> System.nanoTime() - start >= 10_000_000_000L).orElse(false);
      if (worked) failures = 0;
      var backoffMs = Math.min(200L << failures, 10_000) * ThreadLocalRandom.current().nextDouble(0.5, 1);
      failures = Math.min(failures + 1, 10);
      var delayMs = Math.max(error.retryDelayMs, (long) backoffMs);
      var then = revision.map(last -> "resuming after revision " + last).orElse("relisting");
      System.err.printf("%s: %s %s in %d ms%n", error.reason, error.message, then, delayMs);
      Thread.sleep(delayMs);
      channel.resetConnectBackoff(); // This loop has waited already.
    }
  }

  /** Opens one stream, from the resume point on, and applies what it sends until it ends. */
  private void stream(String resource, String prefix) {
    var request = WatchRequest.newBuilder().setResource(resource).setPrefix(prefix);
    // Without a resume point: the current state first, then each change after it.
    revision.ifPresentOrElse(
        last -> request.setAfterRevision(last).setHistoryId(history), () -> request.setSendInitialEvents(true));
    var events = new ArrayList<Event>();
    var relisted = false;
    since = Optional.empty();
    var responses = service.watch(request.build());
    while (responses.hasNext()) {
      WatchResponse response = responses.next();
      if (since.isEmpty()) since = Optional.of(System.nanoTime());
      if (!response.getHistoryId().isEmpty()) history = response.getHistoryId();
      events.addAll(response.getEventsList());
      relisted |= response.getInitialEventsEnd();
      if (response.hasRevision()) { // It completes the batch, and is the resume point.
        apply(events, relisted, response.getRevision());
        revision = Optional.of(response.getRevision());
        events.clear();
        relisted = false;
      }
    }
  }

  /** Applies an atomic batch. The initial state is a batch too, and replaces all that the copy has. */
  private void apply(List<Event> events, boolean relisted, long revision) {
    if (relisted) {
      var gone = new HashSet<>(copy.keySet());
      events.forEach(event -> gone.remove(event.getObject().getKey()));
      gone.forEach(key -> System.out.println(revision + " DELETED " + key));
      copy.keySet().removeAll(gone);
    }
    for (var event : events) {
      var object = event.getObject();
      var deleted = event.getType() == EventType.EVENT_TYPE_DELETED;
      var before = deleted ? copy.remove(object.getKey()) : copy.put(object.getKey(), object);
      if (relisted && object.equals(before)) continue;
      var change = deleted ? "DELETED" : before == null ? "ADDED" : "MODIFIED";
      var value = deleted ? "" : " " + object.getValue().toStringUtf8();
      System.out.println(object.getModRevision() + " " + change + " " + object.getKey() + value);
    }
  }

  /** The reason of an error, and the delay that the service asks for. */
  private record ErrorDetails(String reason, long retryDelayMs, String message) {
    static ErrorDetails of(StatusRuntimeException failure) throws InvalidProtocolBufferException {
      var status = StatusProto.fromThrowable(failure);
      var reason = "DISCONNECTED";
      var retryDelayMs = 0L;
      for (Any detail : status.getDetailsList()) {
        if (detail.is(ErrorInfo.class)) reason = detail.unpack(ErrorInfo.class).getReason();
        if (detail.is(RetryInfo.class)) {
          var delay = detail.unpack(RetryInfo.class).getRetryDelay();
          retryDelayMs = delay.getSeconds() * 1_000 + delay.getNanos() / 1_000_000;
        }
      }
      return new ErrorDetails(reason, retryDelayMs, status.getMessage());
    }
  }
}
