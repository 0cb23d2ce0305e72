import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import { type FrameParts, frameOf } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { HealthCheckRequest__Output } from "../../wire/generated/grpc/health/v1/HealthCheckRequest.ts";
import { healthService } from "../../wire/services.ts";
import { sendResponse } from "../calls/call-admission.ts";
import { MessageSender } from "../calls/message-sender.ts";
import type { ServiceHandlers } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import type { ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";

export type ServingStatus = "SERVING" | "NOT_SERVING";

type ReportedStatus = ServingStatus | "SERVICE_UNKNOWN";

/** Whether the caller may know that the service exists. */
export type MayKnow = (identity: Identity, service: string) => boolean;

/**
 * Serves grpc.health.v1.Health. A service that the caller may not know is like an unknown one.
 *
 * A watch has at most one status outstanding. A client that does not read gets the newest status when it reads again. A
 * client that does not accept a status within the stall detector's timeout gets SLOW_CONSUMER.
 *
 * Responses count in the send budget and never wait for it: an orchestrator would end a process whose health does not
 * respond because other clients do not read.
 */
export class HealthService {
  readonly #statuses: Map<string, ServingStatus>;
  readonly #context: ServiceContext;
  readonly #mayKnow: MayKnow;
  readonly #watches = new Set<HealthWatch>();
  #ended = false;
  /** The response of List for a caller that may know all services, encoded once per change. */
  #listed: FrameParts | undefined;

  /** `statuses` has every service. */
  constructor(
    statuses: ReadonlyMap<string, ServingStatus>,
    context: ServiceContext,
    mayKnow: MayKnow,
  ) {
    this.#statuses = new Map(statuses);
    this.#context = context;
    this.#mayKnow = mayKnow;
  }

  /** Sets the status of a service that the constructor was given. */
  set(service: string, serving: ServingStatus): void {
    this.#statuses.set(service, serving);
    this.#listed = undefined;
    for (const watch of this.#watches) watch.report(this.#of(watch));
  }

  /** What callers may know has changed: each watch gets the status of its service if it is another for its caller. */
  recheck(): void {
    for (const watch of this.#watches) watch.report(this.#of(watch));
  }

  /** Ends all watches with DRAINING, after their last status. */
  end(): void {
    this.#ended = true;
    for (const watch of this.#watches) watch.finish();
  }

  /** The handlers of the methods, by name. */
  readonly handlers: ServiceHandlers = {
    Check: {
      access: "open",
      handle: (call, request: HealthCheckRequest__Output) => {
        this.#check(call, request);
      },
    },
    List: {
      access: "open",
      handle: (call) => {
        this.#list(call);
      },
    },
    Watch: {
      access: "open",
      handle: (call, request: HealthCheckRequest__Output) => {
        this.#watch(call, request);
      },
    },
  };

  #check(call: ServerCall, { service }: HealthCheckRequest__Output): void {
    const serving = this.#statuses.get(service);
    if (serving !== undefined && this.#mayKnow(call.identity, service)) {
      this.#respond(call, responses[serving]);
      return;
    }
    const details = "There is no service of that name. List returns the names of all services.";
    call.end(refused(status.NOT_FOUND, details, "UNKNOWN_RESOURCE"));
  }

  #list(call: ServerCall): void {
    const known = [...this.#statuses].filter(([name]) => this.#mayKnow(call.identity, name));
    if (known.length < this.#statuses.size) {
      this.#respond(call, listResponse(known));
      return;
    }
    this.#listed ??= listResponse(known);
    this.#respond(call, this.#listed);
  }

  #respond(call: ServerCall, parts: FrameParts): void {
    sendResponse(this.#context, call, parts, this.#context.sendBudget.force(call.connection));
  }

  #watch(call: ServerCall, { service }: HealthCheckRequest__Output): void {
    if (call.isOver) return;
    const { streams } = this.#context;
    const watch = new HealthWatch(call, this.#known(service), this.#context, () => {
      this.#watches.delete(watch);
      streams.delete(watch);
    });
    const refusal = streams.makeRoom(watch.owner);
    if (refusal !== undefined) {
      watch.evict(refusal);
      return;
    }
    streams.add(watch);
    this.#watches.add(watch);
    watch.report(this.#of(watch));
    if (this.#ended) watch.finish();
  }

  #of({ service, identity }: HealthWatch): ReportedStatus {
    if (service === undefined || !this.#mayKnow(identity, service)) return "SERVICE_UNKNOWN";
    return this.#statuses.get(service) ?? "SERVICE_UNKNOWN";
  }

  /** The service's name from `#statuses`; undefined for an unknown service, whose name is not retained. */
  #known(service: string): string | undefined {
    for (const known of this.#statuses.keys()) if (known === service) return known;
    return undefined;
  }
}

/** The response for each status, encoded once. */
const responses = {
  SERVING: checkResponse("SERVING"),
  NOT_SERVING: checkResponse("NOT_SERVING"),
  SERVICE_UNKNOWN: checkResponse("SERVICE_UNKNOWN"),
} as const satisfies Record<ReportedStatus, readonly [Uint8Array]>;

function checkResponse(serving: ReportedStatus): readonly [Uint8Array] {
  return [Buffer.concat(frameOf(healthService.Check.responseSerialize({ status: serving })))];
}

function listResponse(known: readonly (readonly [string, ServingStatus])[]): FrameParts {
  const statuses = known.map(([name, serving]) => [name, { status: serving }]);
  const response = { statuses: Object.fromEntries(statuses) };
  return frameOf(healthService.List.responseSerialize(response));
}

class HealthWatch extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "health";
  /** Without the right its status becomes unknown, as if the service were. */
  readonly access = undefined;
  protected readonly waitsFor = "nothing";
  /** Undefined: an unknown service. */
  readonly service: string | undefined;
  readonly #onEnd: () => void;
  #reported: ReportedStatus | undefined;
  #newest: ReportedStatus | undefined;
  #isEnding = false;

  constructor(
    call: ServerCall,
    service: string | undefined,
    context: ServiceContext,
    onEnd: () => void,
  ) {
    super(call, context);
    this.service = service;
    this.#onEnd = onEnd;
    call.onOver(() => this.close());
  }

  report(serving: ReportedStatus): void {
    this.#newest = serving;
    this.pump();
  }

  /** Ends it behind its last status. */
  finish(): void {
    this.#isEnding = true;
    this.pump();
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  protected override next(): FrameParts | undefined {
    const newest = this.#newest;
    if (newest !== undefined && newest !== this.#reported) {
      this.#reported = newest;
      return responses[newest];
    }
    const message = "This replica is shutting down. Watch another replica.";
    if (this.#isEnding) this.evict(new WatchFanoutError("DRAINING", message));
    return undefined;
  }

  protected override onClosed(): void {
    this.#onEnd();
  }

  protected override slowStatus(): WireStatus {
    const message =
      "The client has not accepted the last status of this health watch in time. Watch again, and read the responses.";
    return statusOf(new WatchFanoutError("SLOW_CONSUMER", message));
  }
}
