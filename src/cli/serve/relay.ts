import { Backoff } from "../../base/backoff.ts";
import { CertificateStore } from "../../base/certificate-store.ts";
import { pause } from "../../base/clock.ts";
import { messageOf, WatchFanoutError } from "../../base/errors.ts";
import { OutageLog } from "../../base/logger.ts";
import { isUnimplemented } from "../../client/calls/call-failure.ts";
import type { Endpoint } from "../../client/calls/endpoints.ts";
import type { ConnectOptions } from "../../client/calls/options.ts";
import { type Client, connect } from "../../client/connect.ts";
import type { AliasedUpstream } from "../../client/remote/history-alias.ts";
import { RelayedCalls } from "../../client/remote/relayed-calls.ts";
import { RemoteLeases } from "../../client/remote/remote-leases.ts";
import { RemoteStorage, ReportedStaleness } from "../../client/remote/remote-storage.ts";
import { RemoteStore } from "../../client/remote/remote-store.ts";
import type { ResourceInfo } from "../../client/resource-info.ts";
import type { ResourceConfig, UpstreamConfig } from "../../config/config.ts";
import type { RelayedUpstream } from "../../server/server.ts";
import type { FollowedServer } from "../../storage/etcd/etcd-storage.ts";
import { isPathRefusal } from "../../wire/via.ts";
import { watchClientCertificates } from "./certificates.ts";
import type { ProcessContext } from "./process-context.ts";
import { StartError } from "./start-error.ts";

/** How long a server may take to list its resources, in milliseconds. */
const listTimeoutMs = 5_000;

/** How long a server may take to check the path of another relay, in milliseconds. */
const checkTimeoutMs = 2_000;

/** Interval at which the servers in use are asked for the state of their resources, and its timeout, in milliseconds. */
const pollMs = 2_000;
const pollTimeoutMs = 2_000;

/** Pauses while no server responds at start, in milliseconds. */
const startBackoff = { initialMs: 200, maxMs: 5_000 };

interface RelayOptions extends ProcessContext {
  readonly upstream: UpstreamConfig;
  readonly instanceId: string;
}

/**
 * The connection of a relay to the servers that it follows: replicas of a watch-fanout, or other relays. It authenticates
 * there as itself.
 */
export class Relay implements RelayedUpstream {
  readonly #options: RelayOptions;
  readonly #connectOptions: Omit<ConnectOptions, "address">;
  readonly #client: Client;
  readonly #calls: RelayedCalls;
  /** What its storages and its store know together. */
  readonly #aliased: AliasedUpstream = {};
  /** By the names in the upstream. */
  readonly #storages = new Map<string, RemoteStorage>();
  /** What is known of the servers whose etcd API is followed, by the names there. */
  readonly #followed = new Map<string, Followed>();
  /** Clients of those servers, by their addresses. */
  readonly #clients = new Map<string, Client>();
  readonly #closing = new AbortController();
  /** Names in the upstream that are not relayed, and relayed ones that it no longer has, as last logged. */
  #differences = "";

  /** Sends nothing. Throws a StartError for unusable certificates. */
  constructor(options: RelayOptions) {
    const { upstream, instanceId, clock } = options;
    const { addresses, tokenFile } = upstream;
    this.#options = options;
    this.#connectOptions = {
      tls: this.#tls(),
      token: tokenFile === undefined ? undefined : { file: tokenFile.path },
      // A client of this relay retries itself: each tier would multiply the attempts.
      maxAttempts: Math.max(2, addresses.length),
      ...{ clock, relayId: instanceId },
    };
    this.#client = connect({ ...this.#connectOptions, address: addresses });
    this.#calls = new RelayedCalls(this.#client);
  }

  /** Identifies this process in the path of requests that relays pass on. */
  get instanceId(): string {
    return this.#options.instanceId;
  }

  /** The addresses of the upstream. */
  get addresses(): readonly string[] {
    return this.#options.upstream.addresses;
  }

  /**
   * Resolves to the resources of the upstream of which the relay may read anything, once one of its servers responds.
   * `onWaiting` is called with the reason, a sentence, while none does. Rejects with a StartError if a server can't be
   * followed: it refuses the relay, is too old, or follows the relay itself. `known`: what an earlier process got, which is
   * returned if no server responds to the first request.
   */
  async resources(
    onWaiting: (why: string) => void,
    known?: readonly ResourceInfo[],
  ): Promise<readonly ResourceInfo[]> {
    const { clock, logger, upstream } = this.#options;
    const { signal } = this.#closing;
    const backoff = new Backoff(startBackoff, Math.random);
    const outage = new OutageLog(clock, logger);
    const clients = upstream.addresses.map((address) =>
      connect({ ...this.#connectOptions, address, maxAttempts: 1 }),
    );
    try {
      for (;;) {
        const asked = clients.map((client) =>
          client.resources({ signal, timeoutMs: listTimeoutMs, checkPath: true }),
        );
        const results = await Promise.allSettled(asked);
        let failure: unknown;
        for (const result of results) {
          if (result.status === "fulfilled") continue;
          failure = result.reason;
          checkMayFollow(failure);
        }
        const answered = results.find((result) => result.status === "fulfilled");
        if (answered !== undefined) {
          outage.ended("the upstream responds");
          return answered.value;
        }
        signal.throwIfAborted();
        const why = messageOf(failure);
        const kind = failure instanceof WatchFanoutError ? failure.reason : "";
        outage.failed(kind, { err: failure }, "the upstream does not respond");
        if (known !== undefined) return known;
        onWaiting(`the upstream has not said which resources it serves: ${why}`);
        await pause(clock, backoff.next(), signal);
      }
    } finally {
      for (const client of clients) client.close();
    }
  }

  /** The storage of a resource. Its user closes it. */
  storageOf({ name, upstreamName: resource = name }: ResourceConfig): RemoteStorage {
    const { clock } = this.#options;
    const storage = new RemoteStorage({
      ...{ client: this.#calls, resource, clock, upstream: this.#aliased },
    });
    this.#storages.set(resource, storage);
    return storage;
  }

  /** What the resources share in the upstream. */
  storeOf(resources: readonly ResourceConfig[]): RemoteStore {
    const names = resources.map(({ name, upstreamName = name }) => [name, upstreamName] as const);
    const { clock } = this.#options;
    return new RemoteStore({
      ...{ client: this.#calls, names: new Map(names), upstream: this.#aliased },
      leases: new RemoteLeases({
        ...{ connection: this.#client.connection, clock },
        names: new Map(names.map(([name, upstreamName]) => [upstreamName, name])),
      }),
    });
  }

  /** What is known of the server whose etcd API a storage of this resource uses. */
  followedBy({ name, upstreamName: resource = name }: ResourceConfig): FollowedServer {
    const followed = new Followed(this.#options.clock);
    this.#followed.set(resource, followed);
    return followed;
  }

  /**
   * Asks the servers in use for the state of their resources, until `close`: how old their caches may be, and whether they
   * have gained or lost resources, which is logged. `isSelective`: the configuration names the resources.
   */
  async follow(isSelective: boolean): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closing;
    for (;;) {
      await pause(clock, pollMs, signal);
      if (signal.aborted) return;
      await Promise.all([
        ...Array.from(this.#serversInUse(), (server) => this.#poll(server, isSelective)),
        ...Array.from(this.#followedAddresses(), (address) =>
          this.#pollFollowed(address, isSelective),
        ),
      ]);
    }
  }

  async checkPath(via: string, signal: AbortSignal): Promise<void> {
    const inUse = this.#serversInUse();
    const options = { via, signal, timeoutMs: checkTimeoutMs, checkPath: true };
    const followed = Array.from(this.#followedAddresses(), (address) =>
      this.#clientOf(address).resources(options),
    );
    const servers = inUse.size + followed.length === 0 ? [undefined] : inUse;
    const asked = Array.from(servers, (server) => this.#client.resources({ ...options, server }));
    asked.push(...followed);
    const failures = (await Promise.allSettled(asked)).flatMap((result) =>
      result.status === "rejected" ? [result.reason as unknown] : [],
    );
    const refusal = failures.find(isRefusal) ?? failures[0];
    if (refusal !== undefined) throw refusal;
  }

  /** Ends all calls. Close the storages before. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#client.close();
    for (const client of this.#clients.values()) client.close();
  }

  #tls(): ConnectOptions["tls"] {
    const { upstream, files } = this.#options;
    const { tls } = upstream;
    if (tls === undefined) return undefined;
    const certificates = new CertificateStore(tls.ca, tls.client);
    watchClientCertificates(files, "upstream", tls, {
      replaceCertificate: (pair) => certificates.replacePair(pair),
      replaceAuthorities: (authorities) => certificates.replaceAuthorities(authorities),
    });
    return { certificates, ...tls.client };
  }

  /** The servers that are watched now. */
  get addressesInUse(): readonly string[] {
    const servers = Array.from(this.#serversInUse(), ({ address }) => address);
    return [...servers, ...this.#followedAddresses()];
  }

  #followedAddresses(): ReadonlySet<string> {
    const addresses = Array.from(this.#followed.values(), ({ address }) => address);
    return new Set(addresses.filter((address) => address !== undefined));
  }

  #clientOf(address: string): Client {
    const known = this.#clients.get(address);
    if (known !== undefined) return known;
    const client = connect({ ...this.#connectOptions, address, maxAttempts: 1 });
    this.#clients.set(address, client);
    return client;
  }

  #serversInUse(): ReadonlySet<Endpoint> {
    return new Set([...this.#storages.values()].flatMap(({ servers }) => [...servers]));
  }

  #poll(server: Endpoint, isSelective: boolean): Promise<void> {
    const { signal } = this.#closing;
    const asked = this.#client.resources({ server, signal, timeoutMs: pollTimeoutMs });
    return this.#observe(asked, isSelective, ({ name, staleForMs }) => {
      const storage = this.#storages.get(name);
      if (storage?.servers.has(server) === true) storage.observeStaleness(staleForMs);
    });
  }

  #pollFollowed(address: string, isSelective: boolean): Promise<void> {
    const { signal } = this.#closing;
    const asked = this.#clientOf(address).resources({ signal, timeoutMs: pollTimeoutMs });
    return this.#observe(asked, isSelective, ({ name, staleForMs }) => {
      const followed = this.#followed.get(name);
      if (followed?.address === address) followed.observe(staleForMs);
    });
  }

  async #observe(
    asked: Promise<readonly ResourceInfo[]>,
    isSelective: boolean,
    observe: (resource: ResourceInfo) => void,
  ): Promise<void> {
    const { signal } = this.#closing;
    try {
      const served = await asked;
      for (const resource of served) observe(resource);
      this.#logDifferences(served, isSelective);
    } catch (error) {
      // The caches report that the server is lost.
      if (!signal.aborted && !(error instanceof WatchFanoutError)) throw error;
    }
  }

  #logDifferences(served: readonly ResourceInfo[], isSelective: boolean): void {
    const names = served.flatMap(({ name, isReadableInFull }) => (isReadableInFull ? [name] : []));
    const relayed = [...this.#storages.keys(), ...this.#followed.keys()];
    const lost = relayed.filter((name) => !names.includes(name)).join(", ");
    const gained = isSelective ? "" : names.filter((name) => !relayed.includes(name)).join(", ");
    const differences = JSON.stringify({ lost, gained });
    if (differences === this.#differences) return;
    this.#differences = differences;
    const { logger } = this.#options;
    if (lost !== "") {
      const text =
        "the upstream no longer serves resources to this relay; their caches get no changes";
      logger.warn({ resources: lost }, text);
    }
    if (gained !== "") {
      logger.info(
        { resources: gained },
        "the upstream serves further resources; restart to relay them",
      );
    }
  }
}

/** The server whose etcd API the storage of a resource uses. */
class Followed extends ReportedStaleness implements FollowedServer {
  /** Where its watch was opened last; undefined before that. */
  address: string | undefined;

  get staleForMs(): number | undefined {
    return this.ms;
  }

  opens(endpoint: string): void {
    this.address = endpoint.replace(/^https?:\/\//, "");
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof WatchFanoutError && isPathRefusal(error);
}

/** Throws a StartError for a failure that does not end by itself. */
function checkMayFollow(error: unknown): void {
  if (!(error instanceof WatchFanoutError)) throw error;
  if (isUnimplemented(error)) {
    throw new StartError(
      `--upstream: ${error.message} A relay needs a watch-fanout that has the call Resources: update it first.`,
      { cause: error },
    );
  }
  const isRefused = ["UNAUTHENTICATED", "PERMISSION_DENIED"].includes(error.reason);
  if (isRefused || isPathRefusal(error)) {
    throw new StartError(`--upstream: ${error.message}`, { cause: error });
  }
}
