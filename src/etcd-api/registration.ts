import { hostname } from "node:os";
import type { Logger } from "pino";
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { OutageLog } from "../base/logger.ts";
import type { EtcdClient } from "../etcd/client/etcd-client.ts";
import { prefixRange } from "../etcd/client/key-range.ts";
import { memberListOf, type NamedMember } from "../etcd/wire/member-list.ts";

export interface RegistrationOptions {
  /** Without a slash at the end. */
  readonly prefix: string;
  /** That clients reach this service at. */
  readonly url: string;
  /** For how long it stays registered after this process has ended, in seconds. */
  readonly ttlSeconds: number;
}

/** Maximum number of registered services that are named. */
const maxRegistered = 1_000;

/** How long a registration that has failed waits to be tried again, in milliseconds. */
const retryMs = 1_000;

/**
 * Registers this service in etcd, under a lease, as `etcd grpc-proxy` does: in the format of etcd's naming, so that each of
 * them names all, and clients with etcd's resolver find them.
 */
export class Registration {
  readonly #client: EtcdClient;
  readonly #options: RegistrationOptions;
  readonly #clock: Clock;
  readonly #outage: OutageLog;
  readonly #self: NamedMember;
  /** What was registered when etcd answered last. */
  #registered: readonly NamedMember[];
  #lease: bigint | undefined;
  #timer: Timer | undefined;
  #isClosed = false;

  constructor(client: EtcdClient, options: RegistrationOptions, clock: Clock, logger: Logger) {
    this.#client = client;
    this.#options = options;
    this.#clock = clock;
    this.#outage = new OutageLog(clock, logger);
    this.#self = { name: hostname(), url: options.url };
    this.#registered = [this.#self];
  }

  /** Registers, and stays registered until `close`. */
  start(): void {
    void this.#renew();
  }

  /** Ends the registration. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    const lease = this.#lease;
    this.#lease = undefined;
    // Otherwise it ends with the lease.
    if (lease !== undefined) await this.#client.leases.revoke(lease).catch(() => {});
  }

  /** A MemberListResponse with all that are registered; with this one, if none is. Never rejects. */
  async memberList(): Promise<Buffer> {
    const range = prefixRange(Buffer.from(`${this.#options.prefix}/`));
    try {
      const { kvs } = await this.#client.range({ ...range, limit: maxRegistered }, undefined);
      const found: NamedMember[] = [];
      for (let i = 0; i < kvs.length; i++) found.push(...registeredIn(kvs.at(i)?.value));
      this.#registered = found.length > 0 ? found : [this.#self];
    } catch {
      // What was there is more than nothing.
    }
    return memberListOf(this.#registered);
  }

  async #renew(): Promise<void> {
    let waitMs = (this.#options.ttlSeconds * 1_000) / 3;
    try {
      const lease = this.#lease;
      if (lease === undefined || !(await this.#client.leases.renew(lease))) await this.#register();
      this.#outage.ended("registered in etcd again");
    } catch (error) {
      const why = messageOf(error);
      this.#outage.failed(why, { why }, "can't register in etcd, or renew that");
      waitMs = Math.min(waitMs, retryMs);
    }
    if (this.#isClosed) return;
    this.#timer = this.#clock.setTimeout(() => void this.#renew(), waitMs);
  }

  async #register(): Promise<void> {
    const { prefix, url, ttlSeconds } = this.#options;
    this.#lease = undefined;
    const lease = await this.#client.leases.grant(ttlSeconds);
    const metadata = JSON.stringify({ name: this.#self.name });
    const put = {
      key: Buffer.from(`${prefix}/${url}`),
      value: Buffer.from(JSON.stringify({ Op: 0, Addr: url, Metadata: metadata })),
      lease: String(lease),
    };
    try {
      if (this.#isClosed) throw new Error("the service is shutting down");
      const txn = { compare: [], success: [{ request_put: put }], failure: [] };
      await this.#client.write(txn, lease, undefined);
      this.#lease = lease;
    } finally {
      // It may have been closed meanwhile.
      if (this.#lease === undefined || this.#isClosed) await this.#client.leases.revoke(lease);
    }
  }
}

/** The service that a value registers; none if it is not one of etcd's naming. */
function registeredIn(value: Buffer | undefined): NamedMember[] {
  try {
    const { Addr: url, Metadata: metadata } = JSON.parse(String(value)) as {
      readonly Addr?: unknown;
      readonly Metadata?: unknown;
    };
    const { name } = JSON.parse(String(metadata)) as { readonly name?: unknown };
    return typeof url === "string" ? [{ name: String(name ?? ""), url }] : [];
  } catch {
    return [];
  }
}
