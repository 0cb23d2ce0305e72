import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { type Askable, askUpstream } from "../../etcd/client/upstream-call.ts";
import { futureRevision } from "../../etcd/wire/error-texts.ts";
import { permissionRequest, type RangeRequest } from "../../etcd/wire/range-request.ts";
import { requestHeaders } from "../calls/metadata.ts";

/** How long etcd's permission stands, in milliseconds. */
const permittedMs = 1_000;

/** Maximum number of permissions that are remembered; the oldest make room. */
const maxPermissions = 10_000;

/** Metadata that may identify the caller, to etcd or to another watch-fanout before it. */
const credentials = ["token", "authorization", "x-forwarded-client-cert"];

/** Of a caller and a range. */
interface Permission {
  /** When etcd was asked, in the clock's milliseconds. */
  readonly since: number;
  readonly accessChanges: number;
  /** Undefined: etcd permits it. */
  pending: Promise<boolean> | undefined;
}

/**
 * Knows what etcd permits clients with a token to read. It is asked with the client's own metadata, by a Range of the same
 * keys at a revision that does not exist: etcd looks at the permission first, and reads nothing. Only a permission is
 * remembered, for exactly this credential and range: what etcd refuses it refuses itself, with its own text.
 */
export class ReadPermissions {
  readonly #upstream: Askable;
  readonly #clock: Clock;
  /** Number of times that etcd's authentication may have been changed. */
  readonly #accessChanges: () => number;
  /** By a digest of the credential and the range, the oldest first. */
  readonly #known = new Map<string, Permission>();

  constructor(upstream: Askable, clock: Clock, accessChanges: () => number) {
    this.#upstream = upstream;
    this.#clock = clock;
    this.#accessChanges = accessChanges;
  }

  /** Number of permissions that are remembered, or asked for. */
  get size(): number {
    return this.#known.size;
  }

  /** Undefined: etcd has permitted it in the last second. Otherwise resolves to whether etcd permits it. Never rejects. */
  confirm(request: RangeRequest, metadata: IncomingHttpHeaders): Promise<boolean> | undefined {
    const id = digestOf(request, metadata);
    const known = this.#known.get(id);
    if (known !== undefined && this.#isValid(known)) return known.pending;
    return this.#ask(id, request, metadata);
  }

  #isValid({ since, accessChanges }: Permission): boolean {
    const isNew = this.#clock.now() - since < permittedMs;
    return isNew && accessChanges === this.#accessChanges();
  }

  #ask(id: string, request: RangeRequest, metadata: IncomingHttpHeaders): Promise<boolean> {
    const headers = requestHeaders("/etcdserverpb.KV/Range", metadata);
    delete headers["grpc-timeout"];
    delete headers["grpc-accept-encoding"];
    const asked = permissionRequest(request);
    const pending = askUpstream(this.#upstream, headers, asked, this.#clock).then(
      ({ code, details }) => {
        const isPermitted = code === status.OUT_OF_RANGE && details === futureRevision;
        if (isPermitted) permission.pending = undefined;
        else if (this.#known.get(id) === permission) this.#known.delete(id);
        return isPermitted && permission.accessChanges === this.#accessChanges();
      },
    );
    const permission: Permission = {
      since: this.#clock.now(),
      accessChanges: this.#accessChanges(),
      pending,
    };
    this.#known.delete(id);
    this.#known.set(id, permission);
    if (this.#known.size > maxPermissions) {
      const [oldest] = this.#known.keys();
      if (oldest !== undefined) this.#known.delete(oldest);
    }
    return pending;
  }
}

/** No token is kept. Each part has an end that it can't contain, or a known length. */
function digestOf({ key, rangeEnd }: RangeRequest, metadata: IncomingHttpHeaders): string {
  const caller = credentials.map((name) => metadata[name] ?? null);
  return createHash("sha256")
    .update(JSON.stringify([...caller, key.length]))
    .update(key)
    .update(rangeEnd)
    .digest("base64");
}
