import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { invalidRequest } from "../base/errors.ts";
import type { Access } from "../policy/access.ts";
import type { ServedResource } from "../server/calls/service-options.ts";
import { AnyTypes } from "./any-types.ts";
import { Catalog } from "./catalog.ts";
import { Feed, type FeedTarget } from "./feed.ts";
import { type InvalidEntry, InvalidValues } from "./invalid-values.ts";
import { Sequence } from "./response.ts";
import { emptyAssignment, Services } from "./services.ts";
import { StoredType } from "./stored-types.ts";
import { type TypeName, type XdsType, xdsTypes } from "./types.ts";

/** Number of invalid values that are shown of each type. */
const maxShown = 100;

/** What a type is served from. */
export interface ServedFrom {
  readonly type: TypeName;
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
  /** Number of names that clients ask for, and of streams that ask for all. */
  readonly followed: { readonly names: number; readonly ofAll: number };
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
  readonly #services: Services | undefined;

  constructor(
    resource: string,
    catalog: Catalog,
    {
      feed,
      invalid,
      services,
    }: { feed: Feed; invalid: InvalidValues; services: Services | undefined },
  ) {
    this.type = catalog.type;
    this.catalog = catalog;
    this.feed = feed;
    this.#resource = resource;
    this.#invalid = invalid;
    this.#services = services;
    this.accessToAll = { verb: "watch", resource, scope: { prefix: "" } };
  }

  /** What a client needs that asks for this name: of a service to all of its instances. */
  accessTo(name: string): Access {
    const scope = this.#services === undefined ? { key: name } : { prefix: `${name}/` };
    return { verb: "watch", resource: this.#resource, scope };
  }

  report(): TypeReport {
    const { catalog } = this;
    return {
      ...{ type: this.type.name, resource: this.#resource, served: catalog.resources.size },
      ...{ instances: this.#services?.instances, followed: catalog.followed },
      ...{ invalid: this.#invalid.size, firstInvalid: this.#invalid.first(maxShown) },
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
  readonly #byUrl: ReadonlyMap<string, number>;

  constructor(options: ServedTypesOptions) {
    const { resources } = options;
    const sequence = new Sequence();
    const types = new AnyTypes();
    const served: ServedType[] = [];
    const feedsOf = (names: readonly TypeName[]) => async (revision: number) => {
      const feeds = served.filter(({ type }) => names.includes(type.name));
      await Promise.all(feeds.map(({ feed }) => feed.caughtUp(revision)));
    };
    for (const type of xdsTypes) {
      const from = resources.get(type.name);
      if (from !== undefined)
        served.push(servedType(type, from, options, { sequence, types, feedsOf }));
    }
    this.all = served;
    this.#byUrl = new Map(served.map(({ type }, at) => [type.url, at]));
  }

  /** Follows the resources. */
  start(): void {
    for (const { feed } of this.all) feed.start();
  }

  /** The place of a type that a request names. Throws INVALID_REQUEST for one that is not served. */
  placeOf(url: string): number {
    const place = this.#byUrl.get(url);
    if (place !== undefined) return place;
    const known = xdsTypes.find((type) => type.url === url);
    const served = this.all.map(({ type }) => type.name).join(", ");
    const why =
      known === undefined
        ? `The type ${JSON.stringify(url)} is not one of xDS that this service knows.`
        : `No resource is configured for the type ${known.name}: set --xds ${known.name}=RESOURCE.`;
    throw invalidRequest("type_url", `${why} It serves ${served}.`);
  }

  close(): void {
    for (const type of this.all) type.close();
  }
}

/** What the types share. */
interface Shared {
  readonly sequence: Sequence;
  readonly types: AnyTypes;
  /** Returns what waits until the feeds of these types have what the store had at a revision. */
  readonly feedsOf: (names: readonly TypeName[]) => (revision: number) => Promise<unknown>;
}

function servedType(
  type: XdsType,
  { name, resource }: ServedFrom,
  { clock, logger, random = Math.random, debounceMs }: ServedTypesOptions,
  { sequence, types, feedsOf }: Shared,
): ServedType {
  const log = logger.child({ resource: name, type: type.name });
  const invalid = new InvalidValues(log);
  const isComputed = type.name === "eds";
  const catalog = new Catalog({
    ...{ type, clock, sequence },
    ...(isComputed && {
      makeAbsent: (service: string, revision: number) =>
        emptyAssignment(type, service, revision, sequence),
    }),
  });
  const services = isComputed
    ? new Services({ catalog, sequence, invalid, clock, debounceMs })
    : undefined;
  const target: FeedTarget =
    services ??
    new StoredType({
      ...{ catalog, types, sequence, invalid, clock },
      referred: type.refersToClusters ? feedsOf(["cds", "eds"]) : undefined,
      referring: type.name === "cds" ? feedsOf(["lds", "rds"]) : undefined,
    });
  const feed = new Feed({ resource, target, clock, logger: log, random });
  return new ServedType(name, catalog, { feed, invalid, services });
}
