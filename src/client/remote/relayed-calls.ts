import {
  denialKey,
  hasReason,
  type Reason,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../base/errors.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import type { ClientCalls } from "../watch/client-calls.ts";

/** Refusals that concern the relay itself, as a caller, and not the client whose request it passes on. */
const denials: ReadonlySet<Reason> = new Set(["UNAUTHENTICATED", "PERMISSION_DENIED"]);

/** The state of the upstream, which is not that of the relay: its clients need not leave it. */
const upstreamStates: ReadonlySet<Reason> = new Set([
  ...(["UNKNOWN_RESOURCE", "DRAINING", "TOO_MANY_STREAMS", "OVERLOADED", "NOT_READY"] as const),
]);

/**
 * The calls that a relay makes. Errors pass unchanged, except for those that mean something else to a client of the relay:
 * a refusal of the relay's own identity becomes UPSTREAM_DENIED, and a state of the upstream UPSTREAM_UNAVAILABLE.
 */
export class RelayedCalls implements ClientCalls {
  readonly #calls: ClientCalls;

  constructor(calls: ClientCalls) {
    this.#calls = calls;
  }

  get reachability(): Reachability | undefined {
    return this.#calls.reachability;
  }

  readonly get: ClientCalls["get"] = (...call) => relayed(this.#calls.get(...call));
  readonly list: ClientCalls["list"] = (...call) => relayedEach(this.#calls.list(...call));
  readonly page: ClientCalls["page"] = (...call) => relayed(this.#calls.page(...call));
  readonly history: ClientCalls["history"] = (...call) => relayedEach(this.#calls.history(...call));
  readonly historyPage: ClientCalls["historyPage"] = (...call) =>
    relayed(this.#calls.historyPage(...call));
  readonly watch: ClientCalls["watch"] = (...call) => relayedEach(this.#calls.watch(...call));
  readonly put: ClientCalls["put"] = (...call) => relayed(this.#calls.put(...call));
  readonly delete: ClientCalls["delete"] = (...call) => relayed(this.#calls.delete(...call));
}

async function relayed<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw relayedError(error);
  }
}

async function* relayedEach<T>(items: AsyncIterable<T>): AsyncGenerator<T, void, void> {
  try {
    yield* items;
  } catch (error) {
    throw relayedError(error);
  }
}

/** The error of a call of a relay, as its clients get it. */
export function relayedError(error: unknown): unknown {
  if (!(error instanceof WatchFanoutError)) return error;
  if (denials.has(error.reason)) {
    return new WatchFanoutError(
      "UPSTREAM_DENIED",
      `The server that this relay follows refuses the relay itself: ${error.message}`,
      { metadata: { [denialKey]: error.reason }, cause: error },
    );
  }
  if (!upstreamStates.has(error.reason)) return error;
  return upstreamUnavailable(
    `The server that this relay follows can't serve the request: ${error.message}`,
    error,
  );
}

/** Whether the upstream no longer grants a right to the relay: then the cache must not be served. */
export function isRightLost(error: WatchFanoutError): boolean {
  return hasReason(error, "UPSTREAM_DENIED") && error.metadata[denialKey] === "PERMISSION_DENIED";
}
