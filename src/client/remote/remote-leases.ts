import type { Clock } from "../../base/clock.ts";
import { hasReason, toError, upstreamUnavailable } from "../../base/errors.ts";
import {
  endedLease,
  LeaseRenewals,
  type RenewalListener,
  type RenewalStream,
} from "../../storage/lease-renewals.ts";
import type { GrantedLease, LeaseState, Leases } from "../../storage/store.ts";
import { errorOfStatus } from "../../wire/call-error.ts";
import type { KeepAliveRequest } from "../../wire/generated/watchfanout/v1/KeepAliveRequest.ts";
import type { Renewal__Output } from "../../wire/generated/watchfanout/v1/Renewal.ts";
import { leaseMethods } from "../../wire/methods.ts";
import { CallFailure } from "../calls/call-failure.ts";
import type { Connection } from "../calls/connection.ts";
import { broken, decodeDuration, decodeRevision } from "../calls/decode.ts";
import { wireDuration } from "../calls/encode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import { type RequestStream, withRequests } from "../transport/transport.ts";
import { relayedError } from "./relayed-calls.ts";

/** How long the upstream may take to renew a lease, in milliseconds. */
const renewalTimeoutMs = 5_000;

interface RemoteLeasesOptions {
  readonly connection: Connection;
  readonly clock: Clock;
  /** The names of the resources of this service, by their names in the upstream. */
  readonly names: ReadonlyMap<string, string>;
}

/**
 * The leases of another watch-fanout, for a relay of it. All of them are kept alive on one stream, many with each request.
 * Errors are as those of RelayedCalls.
 */
export class RemoteLeases implements Leases {
  readonly #connection: Connection;
  readonly #names: ReadonlyMap<string, string>;
  readonly #renewals: LeaseRenewals;

  /** Sends nothing. */
  constructor({ connection, clock, names }: RemoteLeasesOptions) {
    this.#connection = connection;
    this.#names = names;
    this.#renewals = new LeaseRenewals({
      clock,
      timeoutMs: renewalTimeoutMs,
      open: (listener) => openStream(connection, listener),
    });
  }

  async grant(ttlSeconds: number, signal?: AbortSignal): Promise<GrantedLease> {
    const request = { ttl: wireDuration(ttlSeconds * 1_000) };
    const granted = this.#connection.write(leaseMethods.Grant, request, { signal });
    const { lease, ttl } = await granted.catch((error: unknown) => {
      // A lease that was granted without a response ends by itself.
      if (!hasReason(error, "OUTCOME_UNKNOWN")) throw relayedError(error);
      throw upstreamUnavailable(error.message, error);
    });
    const ttlMs = decodeDuration(ttl);
    if (ttlMs === undefined) throw broken("a lease without a length");
    return { lease: BigInt(lease), ttlSeconds: Math.floor(ttlMs / 1_000) };
  }

  keepAlive(leases: readonly bigint[], signal?: AbortSignal): Promise<readonly (number | Error)[]> {
    return this.#renewals.renew(leases, signal);
  }

  async revoke(lease: bigint, signal?: AbortSignal): Promise<void> {
    const request = { lease: String(lease) };
    const revoked = this.#connection.write(leaseMethods.Revoke, request, { signal });
    await revoked.catch(rethrown);
  }

  async timeToLive(lease: bigint, hasObjects: boolean, signal?: AbortSignal): Promise<LeaseState> {
    const request = { lease: String(lease), objects: hasObjects };
    const read = this.#connection.read(leaseMethods.TimeToLive, request, { signal });
    const { ttl, granted_ttl, objects, others } = await read.catch(rethrown);
    const named = objects.flatMap(({ resource, key }) => {
      const name = this.#names.get(resource);
      return name === undefined ? [] : [{ resource: name, key }];
    });
    return {
      ttlMs: decodeDuration(ttl) ?? 0,
      grantedTtlSeconds: Math.floor((decodeDuration(granted_ttl) ?? 0) / 1_000),
      objects: named,
      others: decodeRevision(others) + objects.length - named.length,
    };
  }

  /** Every later renewal has UPSTREAM_UNAVAILABLE. Close it before the client. Idempotent. */
  close(): void {
    this.#renewals.close(upstreamUnavailable("The connection to the upstream is closed."));
  }
}

function rethrown(error: unknown): never {
  throw relayedError(error);
}

function openStream(
  connection: Connection,
  { renewed, ended }: RenewalListener,
): Promise<RenewalStream> {
  const stopping = new AbortController();
  const opened = Promise.withResolvers<RenewalStream>();
  let server: { readonly endpoint: Endpoint; readonly incidents: number } | undefined;
  const begin = (requests: RequestStream<KeepAliveRequest>): void =>
    opened.resolve({
      send: (leases) => {
        requests.write({ leases: leases.map(String) });
      },
      close: (hasStalled) => {
        stopping.abort();
        if (hasStalled) server?.endpoint.failed(server.incidents, 0);
      },
    });
  const responses = connection.stream(
    withRequests(leaseMethods.KeepAlive, begin),
    stopping.signal,
    (endpoint) => {
      server = { endpoint, incidents: endpoint.incidents };
    },
  );
  const receive = async (): Promise<void> => {
    try {
      for await (const { renewals } of responses) renewed(renewals.map(outcomeOf));
    } catch (failure) {
      const error = failure instanceof CallFailure ? failure.error : failure;
      const reported = toError(relayedError(error));
      opened.reject(reported);
      ended(reported);
    }
  };
  void receive();
  return opened.promise;
}

function outcomeOf({ ttl, error }: Renewal__Output): number | Error {
  const ttlMs = decodeDuration(ttl);
  if (ttlMs !== undefined) return ttlMs;
  if (error === null) return broken("a renewal without an outcome");
  const said = errorOfStatus(error);
  return hasReason(said, "LEASE_NOT_FOUND") ? endedLease : toError(relayedError(said));
}
