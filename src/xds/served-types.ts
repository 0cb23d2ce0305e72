import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { invalidRequest } from "../base/errors.ts";
import type { Access } from "../policy/access.ts";
import type { ServedResource } from "../server/calls/service-options.ts";
import { AnyTypes } from "./any-types.ts";
import { Catalog } from "./catalog.ts";
import { Feed, type FeedTarget } from "./feed.ts";
import { type InvalidEntry, InvalidValues } from "./invalid-values.ts";
import { assignmentOf, Services } from "./services.ts";
import { type CaughtUp, StoredType, type StoredTypeOptions } from "./stored-types.ts";
import { type TypeName, type XdsType, xdsTypes } from "./types.ts";

/** What a type is served from. */
export interface ServedFrom {
  /** The name of the resource. */
  readonly name: string;
  readonly resource: ServedResource;
}

/** What the types are served from. */
export interface ServedTypesOptions {
  /** By type. */
  readonly resources: ReadonlyMap<TypeName, ServedFrom>;
  /** How long changes of instances are collected, in milliseconds; 0: they are not, beyond a round. */
  readonly debounceMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random?: (() => number) | undefined;
}

/** A type that is served, for operators. */
export interface TypeReport {
  readonly type: TypeName;
  readonly resource: string;
  /** Number of resources that are served. */
  readonly served: number;
  /** Number of instances that assignments were computed from; undefined: the type is stored. */
  readonly instances: number | undefined;
  /** Number of invalid values, and the first of them. */
  readonly invalid: number;
  readonly firstInvalid: readonly InvalidEntry[];
}

/** A type that is served, from one resource. */
export class ServedType {
  readonly type: XdsType;
  readonly catalog: Catalog;
  readonly feed: Feed;
  readonly accessToAll: Access;
  readonly #resource: string;
  readonly #invalid: InvalidValues;
  /** Absent: the type is stored. */
  readonly #services: Services | undefined;

  constructor(
    type: XdsType,
    { name, resource }: ServedFrom,
    { clock, logger: parent, random = Math.random, debounceMs }: ServedTypesOptions,
    shared: Omit<StoredTypeOptions, "catalog">,
  ) {
    const logger = parent.child({ resource: name, type: type.name });
    const invalid = new InvalidValues(clock, logger);
    const isComputed = type.name === "eds";
    const contentOfAbsent = (service: string) => assignmentOf(type, service, []);
    const catalog = new Catalog(type, clock, isComputed ? contentOfAbsent : undefined);
    if (isComputed) this.#services = new Services({ catalog, clock, debounceMs });
    const target: FeedTarget = this.#services ?? new StoredType({ catalog, ...shared });
    this.type = type;
    this.catalog = catalog;
    this.feed = new Feed({ resource, target, invalid, clock, logger, random });
    this.accessToAll = { verb: "watch", resource: name, scope: { prefix: "" } };
    this.#resource = name;
    this.#invalid = invalid;
  }

  /** What a client needs that asks for this name: of a service to all of its instances. */
  accessTo(name: string): Access {
    const scope = this.#services === undefined ? { key: name } : { prefix: `${name}/` };
    return { verb: "watch", resource: this.#resource, scope };
  }

  report(): TypeReport {
    const { type, catalog } = this;
    return {
      ...{ type: type.name, resource: this.#resource, served: catalog.resources.size },
      ...{ instances: this.#services?.instances },
      ...{ invalid: this.#invalid.size, firstInvalid: this.#invalid.first },
    };
  }

  close(): void {
    this.feed.close();
    this.#services?.close();
  }
}

/** The types that are served, in the order in which they are sent. */
export class ServedTypes {
  readonly all: readonly ServedType[];

  constructor(options: ServedTypesOptions) {
    const types = new AnyTypes();
    const served: ServedType[] = [];
    this.all = served;
    const caughtUp: CaughtUp = async (names, revision) => {
      const feeds = served.filter(({ type }) => names.includes(type.name));
      await Promise.all(feeds.map(({ feed }) => feed.caughtUp(revision)));
    };
    for (const type of xdsTypes) {
      const from = options.resources.get(type.name);
      if (from !== undefined) served.push(new ServedType(type, from, options, { types, caughtUp }));
    }
  }

  /** Follows the resources. */
  start(): void {
    for (const { feed } of this.all) feed.start();
  }

  /** The type that a request names. Throws INVALID_REQUEST for one that is not served. */
  named(url: string): ServedType {
    const served = this.all.find(({ type }) => type.url === url);
    if (served !== undefined) return served;
    const known = xdsTypes.find((type) => type.url === url);
    const names = this.all.map(({ type }) => type.name).join(", ");
    const why =
      known === undefined
        ? `The type ${JSON.stringify(url)} is not one of xDS that this service knows.`
        : `No resource is configured for the type ${known.name}: set --xds ${known.name}=RESOURCE.`;
    throw invalidRequest("type_url", `${why} It serves ${names}.`);
  }

  close(): void {
    for (const type of this.all) type.close();
  }
}
