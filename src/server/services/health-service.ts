import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../../base/errors.ts";
import { statusOf } from "../../wire/errors.ts";
import { type FrameParts, frameOf } from "../../wire/frame-parts.ts";
import type { HealthCheckRequest__Output } from "../../wire/generated/grpc/health/v1/HealthCheckRequest.ts";
import { healthService } from "../../wire/standard-services.ts";
import type { ServiceHandlers } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import type { ServerCall } from "../calls/server-call.ts";
import type { OpenStream, OpenStreams } from "../limits/open-streams.ts";
import type { Sender, StallDetector } from "../limits/stall-detector.ts";

export type ServingStatus = "SERVING" | "NOT_SERVING";

type ReportedStatus = ServingStatus | "SERVICE_UNKNOWN";

/**
 * Serves grpc.health.v1.Health.
 *
 * A watch has at most one status outstanding. A client that does not read gets the newest status when it reads again. A
 * client that does not accept a status within the stall detector's timeout gets SLOW_CONSUMER.
 */
export class HealthService {
  readonly #statuses: Map<string, ServingStatus>;
  readonly #streams: OpenStreams;
  readonly #stallDetector: StallDetector;
  readonly #watches = new Set<HealthWatch>();
  #ended = false;
  /** The response of List, encoded once per change. */
  #listed: FrameParts | undefined;

  /** `statuses` has every service. Watches count as `streams`, and `stallDetector` checks them. */
  constructor(
    statuses: ReadonlyMap<string, ServingStatus>,
    streams: OpenStreams,
    stallDetector: StallDetector,
  ) {
    this.#statuses = new Map(statuses);
    this.#streams = streams;
    this.#stallDetector = stallDetector;
  }

  /** Sets the status of a service that the constructor was given. */
  set(service: string, serving: ServingStatus): void {
    this.#statuses.set(service, serving);
    this.#listed = undefined;
    for (const watch of this.#watches) watch.report(this.#of(watch.service));
  }

  /** Ends all watches with DRAINING, after their last status. */
  end(): void {
    this.#ended = true;
    for (const watch of this.#watches) watch.end();
  }

  /** The handlers of the methods, by name. */
  readonly handlers: ServiceHandlers = {
    Check: { handle: (call, request: HealthCheckRequest__Output) => this.#check(call, request) },
    List: { handle: (call) => this.#list(call) },
    Watch: { handle: (call, request: HealthCheckRequest__Output) => this.#watch(call, request) },
  };

  #check(call: ServerCall, { service }: HealthCheckRequest__Output): void {
    const serving = this.#statuses.get(service);
    if (serving !== undefined) {
      call.answer(answers[serving]);
      return;
    }
    const details = "There is no service of that name. List returns the names of all services.";
    call.end(refused(status.NOT_FOUND, details));
  }

  #list(call: ServerCall): void {
    this.#listed ??= listAnswer(this.#statuses);
    call.answer(this.#listed);
  }

  #watch(call: ServerCall, { service }: HealthCheckRequest__Output): void {
    const watch = new HealthWatch(call, this.#known(service), () => {
      this.#watches.delete(watch);
      this.#streams.delete(watch);
      this.#stallDetector.delete(watch);
    });
    if (!watch.open) return;
    const refusal = this.#streams.makeRoom(watch.connection);
    if (refusal !== undefined) {
      watch.evict(refusal);
      return;
    }
    this.#streams.add(watch);
    this.#watches.add(watch);
    this.#stallDetector.add(watch);
    watch.report(this.#of(watch.service));
    if (this.#ended) watch.end();
  }

  #of(service: string | undefined): ReportedStatus {
    return (service === undefined ? undefined : this.#statuses.get(service)) ?? "SERVICE_UNKNOWN";
  }

  /** The service's name from `#statuses`; undefined for an unknown service, whose name is not retained. */
  #known(service: string): string | undefined {
    for (const known of this.#statuses.keys()) if (known === service) return known;
    return undefined;
  }
}

/** The response for each status, encoded once. */
const answers = {
  SERVING: checkAnswer("SERVING"),
  NOT_SERVING: checkAnswer("NOT_SERVING"),
  SERVICE_UNKNOWN: checkAnswer("SERVICE_UNKNOWN"),
} as const satisfies Record<ReportedStatus, readonly [Uint8Array]>;

function checkAnswer(serving: ReportedStatus): readonly [Uint8Array] {
  return [Buffer.concat(frameOf(healthService.Check.responseSerialize({ status: serving })))];
}

function listAnswer(known: ReadonlyMap<string, ServingStatus>): FrameParts {
  const statuses = [...known].map(([name, serving]) => [name, { status: serving }]);
  const response = { statuses: Object.fromEntries(statuses) };
  return frameOf(healthService.List.responseSerialize(response));
}

class HealthWatch implements OpenStream, Sender {
  /** Undefined: an unknown service. */
  readonly service: string | undefined;
  readonly #call: ServerCall;
  #reported: ReportedStatus | undefined;
  #newest: ReportedStatus | undefined;
  #ending = false;
  readonly #onClose: () => void;
  open = true;
  sent = 0;
  outstanding = false;

  constructor(call: ServerCall, service: string | undefined, onClose: () => void) {
    this.#call = call;
    this.service = service;
    this.#onClose = onClose;
    if (call.isOver) this.open = false;
    call.onOver(() => {
      this.open = false;
      onClose();
    });
  }

  get connection(): object {
    return this.#call.connection;
  }

  evict(error: WatchFanoutError): void {
    this.open = false;
    this.#onClose();
    this.#call.end(statusOf(error));
  }

  stalled(): void {
    const message =
      "The client has not accepted the last status of this health watch in time. Watch again, and read the responses.";
    this.evict(new WatchFanoutError("SLOW_CONSUMER", message));
  }

  report(serving: ReportedStatus): void {
    this.#newest = serving;
    this.#send();
  }

  end(): void {
    this.#ending = true;
    this.#send();
  }

  #send(): void {
    if (this.outstanding || !this.open) return;
    const newest = this.#newest;
    if (newest !== undefined && newest !== this.#reported) {
      this.#reported = newest;
      this.outstanding = true;
      this.sent++;
      this.#call.send(answers[newest][0], () => {
        this.outstanding = false;
        this.#send();
      });
    } else if (this.#ending) {
      this.open = false;
      const message = "This replica is shutting down. Watch another replica.";
      this.#call.end(statusOf(new WatchFanoutError("DRAINING", message)));
      this.#onClose();
    }
  }
}
