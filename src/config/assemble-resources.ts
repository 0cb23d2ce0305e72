import type { EventWindowBounds } from "../cacher/state/event-window.ts";
import { type Codec, CodecError, type CodecName, opaqueCodec } from "../codec/codec.ts";
import { JsonCodec } from "../codec/json-codec.ts";
import { ProtobufCodec } from "../codec/protobuf-codec.ts";
import { isLoopback } from "../identity/peer.ts";
import type { Checks } from "./checks.ts";
import type { ResourceConfig, UpstreamConfig, XdsConfig } from "./config.ts";
import { flagOf, type OptionValues } from "./options.ts";
import {
  type EventWindowSettings,
  isResourceName,
  notNameAndPrefix,
  type ResourceSettings,
} from "./resource-settings.ts";
import { didYouMean } from "./setting.ts";
import { formatAddress } from "./value-types.ts";

/** Checks the resources one by one and against each other. `eventWindow` has the bounds that apply by default. */
export function assembleResources(
  values: OptionValues,
  eventWindow: EventWindowBounds,
  checks: Checks,
): readonly ResourceConfig[] {
  const given = values.resource;
  const isRelay = values.upstream.length > 0 && values.etcd.length === 0;
  if (isRelay) return assembleRelayed(given, eventWindow, checks);
  if (given.length === 0 && values.etcd.length > 0) {
    // It needs no cache.
    if (values["etcd-api"]) return [];
    checks.refuse(
      "etcd",
      `needs the keys to serve: ${flagOf("resource")} NAME=PREFIX, such as ` +
        `${flagOf("resource")} services=/services/.`,
    );
  }
  const namespace = values["etcd-api-namespace"];
  for (const [index, later] of given.entries()) {
    refuseIncomplete(later, index, checks);
    if (namespace !== undefined && later.prefix?.startsWith(namespace) === false) {
      const problem = `the prefix must begin with that of --etcd-api-namespace, ${JSON.stringify(namespace)}.`;
      checks.refuse("resource", problem, [index]);
    }
    for (const earlier of given.slice(0, index)) {
      const problem = conflict(earlier, later);
      if (problem !== undefined) checks.refuse("resource", problem, [index]);
    }
  }
  // Of the embedded store, if none is given: its cache serves the etcd API, too, so it has the keys of the namespace.
  const settings = given.length === 0 ? [{ name: "default", prefix: namespace ?? "" }] : given;
  return settings.map((resource, index) => assemble(resource, index, eventWindow, checks));
}

/** How xDS is served. Undefined: it is not. Of a relay whose resources are not known yet these are checked later. */
export function assembleXds(
  values: OptionValues,
  resources: readonly ResourceConfig[],
  checks: Checks,
): XdsConfig | undefined {
  const mappings = values.xds;
  if (mappings.length === 0) return undefined;
  for (const [index, { type, resource }] of mappings.entries()) {
    if (mappings.findIndex((other) => other.type === type) < index) {
      checks.refuse("xds", `the type ${type} is given twice.`, [index]);
    }
    const problem = resources.length === 0 ? undefined : xdsProblem(resource, resources);
    if (problem !== undefined) checks.refuse("xds", problem, [index]);
  }
  return { mappings, debounceMs: values["xds-debounce"] };
}

/** Why xDS can't be served from a resource; undefined: it can. */
export function xdsProblem(
  name: string,
  resources: readonly Pick<ResourceConfig, "name" | "cache">[],
): string | undefined {
  const found = resources.find((resource) => resource.name === name);
  if (found === undefined) {
    const names = resources.map((resource) => resource.name);
    return `there is no resource ${JSON.stringify(name)}.${didYouMean(name, names)}`;
  }
  return found.cache
    ? undefined
    : `the resource ${JSON.stringify(name)} has no cache, which xDS needs.`;
}

/** The resources of a relay. None: all that the upstream serves to it, once it has said which these are. */
function assembleRelayed(
  given: readonly ResourceSettings[],
  eventWindow: EventWindowBounds,
  checks: Checks,
): readonly ResourceConfig[] {
  const names = new Set<string>();
  for (const [index, { name, prefix }] of given.entries()) {
    if (names.has(name)) checks.refuse("resource", `the name "${name}" is given twice.`, [index]);
    names.add(name);
    if (prefix === undefined || isResourceName(prefix)) continue;
    const problem =
      `with --upstream, a resource is NAME or NAME=NAME-UPSTREAM, and ${JSON.stringify(prefix)} is not ` +
      "the name of a resource.";
    checks.refuse("resource", problem, [index]);
  }
  return given.map((resource, index) => {
    const { name, prefix = name, "upstream-name": upstreamName = prefix } = resource;
    return { ...assemble(resource, index, eventWindow, checks), prefix: "", upstreamName };
  });
}

/** The configuration of a relay's resource for which only its name is known. */
export function relayedResource(name: string, eventWindow: EventWindowBounds): ResourceConfig {
  const unconfigured = { prefix: "", codec: opaqueCodec, indexes: [], cache: true };
  return { ...unconfigured, name, upstreamName: name, eventWindow };
}

/** Refuses a resource of etcd or of the embedded store that has no prefix, or a name in an upstream. */
function refuseIncomplete(
  { name, prefix, ...settings }: ResourceSettings,
  index: number,
  checks: Checks,
): void {
  if (settings["upstream-name"] !== undefined) {
    checks.refuse("resource", "needs --upstream as well.", [index, "upstream-name"]);
  }
  if (prefix !== undefined) return;
  const place = checks.place("resource", [index]);
  // A mapping has the place of its parts, a text does not.
  if (checks.place("resource", [index, "prefix"]).includes("]")) {
    checks.refuse("resource", "is missing.", [index, "prefix"]);
  } else {
    checks.problems.push(`${place}: ${JSON.stringify(name)} ${notNameAndPrefix}.`);
  }
}

/** Why two resources can't be served together; undefined if they can. */
function conflict(a: ResourceSettings, b: ResourceSettings): string | undefined {
  const [prefixA = "", prefixB = ""] = [a.prefix, b.prefix];
  const [first, second] = [JSON.stringify(prefixA), JSON.stringify(prefixB)];
  if (a.name === b.name) {
    return `the name "${a.name}" is given twice, for the prefixes ${first} and ${second}.`;
  }
  if (a.prefix === undefined || b.prefix === undefined) return undefined;
  if (!prefixA.startsWith(prefixB) && !prefixB.startsWith(prefixA)) return undefined;
  return (
    `the prefixes of "${a.name}", ${first}, and "${b.name}", ${second}, overlap: ` +
    "a key can belong to one resource only."
  );
}

function assemble(
  settings: ResourceSettings,
  index: number,
  common: EventWindowBounds,
  checks: Checks,
): ResourceConfig {
  const { name, prefix = "", indexes = [], cache = true } = settings;
  refuseIneffective(settings, index, checks);
  return {
    name,
    prefix,
    codec: codecOf(settings, index, checks) ?? opaqueCodec,
    indexes: checkedIndexes(settings, indexes, index, checks),
    eventWindow: eventWindowOf(settings["event-window"], common, index, checks),
    cache,
  };
}

/** The keys that have an effect with each codec. */
const effectiveWith: Readonly<Record<CodecName, readonly (keyof ResourceSettings)[]>> = {
  opaque: [],
  json: ["labels", "fields", "indexes"],
  protobuf: ["labels", "fields", "indexes", "descriptors", "message"],
};

/** Refuses keys without an effect. */
function refuseIneffective(settings: ResourceSettings, index: number, checks: Checks): void {
  const { codec = "opaque", cache = true } = settings;
  const effective = effectiveWith[codec];
  for (const key of effectiveWith.protobuf) {
    if (settings[key] === undefined || effective.includes(key)) continue;
    const wanted = effectiveWith.json.includes(key)
      ? "codec: json or codec: protobuf"
      : "codec: protobuf";
    const problem =
      settings.codec === undefined ? `needs ${wanted} as well.` : `needs ${wanted}, not ${codec}.`;
    checks.refuse("resource", problem, [index, key]);
  }
  if (cache) return;
  for (const key of ["indexes", "event-window"] as const) {
    if (settings[key] === undefined) continue;
    checks.refuse("resource", "has no effect with cache: off.", [index, key]);
  }
}

/** The resource's codec; undefined, with a problem reported, if it can't be made. */
function codecOf(settings: ResourceSettings, index: number, checks: Checks): Codec | undefined {
  try {
    switch (settings.codec) {
      case "json":
        return new JsonCodec(settings);
      case "protobuf":
        return protobufCodec(settings, index, checks);
      default:
        return opaqueCodec;
    }
  } catch (error) {
    if (!(error instanceof CodecError)) throw error;
    for (const { at, message } of error.problems) {
      checks.refuse("resource", message, [index, ...at]);
    }
    return undefined;
  }
}

function protobufCodec(
  settings: ResourceSettings,
  index: number,
  checks: Checks,
): Codec | undefined {
  const { descriptors: path, message, labels, fields } = settings;
  if (path === undefined || message === undefined) {
    const needs =
      "protobuf needs both descriptors, the file of a descriptor set, and message, the full name of " +
      "a message in it.";
    checks.refuse("resource", needs, [index, "codec"]);
    return undefined;
  }
  const descriptors = checks.read("resource", path, [index, "descriptors"]);
  if (descriptors === undefined) return undefined;
  return new ProtobufCodec({ descriptors, message, labels, fields });
}

function checkedIndexes(
  { fields = [] }: ResourceSettings,
  indexes: readonly string[],
  index: number,
  checks: Checks,
): readonly string[] {
  for (const [at, field] of indexes.entries()) {
    if (fields.includes(field)) continue;
    const problem = `${JSON.stringify(field)} is not one of the resource's fields; add it to them.`;
    checks.refuse("resource", problem + didYouMean(field, fields), [index, "indexes", at]);
  }
  return [...new Set(indexes)];
}

function eventWindowOf(
  own: EventWindowSettings | undefined,
  common: EventWindowBounds,
  index: number,
  checks: Checks,
): EventWindowBounds {
  if (own === undefined) return common;
  const bounds = {
    ageMs: own.age ?? common.ageMs,
    minEvents: own["min-events"] ?? common.minEvents,
    maxEvents: own["max-events"] ?? common.maxEvents,
    maxBytes: own["max-bytes"] ?? common.maxBytes,
  };
  const ownEvents = own["min-events"] !== undefined || own["max-events"] !== undefined;
  if (ownEvents && bounds.minEvents > bounds.maxEvents) {
    const source = (key: "min-events" | "max-events"): string =>
      own[key] === undefined ? flagOf(`event-window-${key}`) : key;
    const problem =
      `${source("min-events")}, ${bounds.minEvents}, is more than ` +
      `${source("max-events")}, ${bounds.maxEvents}.`;
    checks.refuse("resource", problem, [index, "event-window"]);
  }
  return bounds;
}

/** Checks the options of a relay, and reads the files that they name. Undefined: the service is not a relay. */
export function upstreamConfig(values: OptionValues, checks: Checks): UpstreamConfig | undefined {
  const addresses = values.upstream;
  if (addresses.length === 0) return undefined;
  if (values.etcd.length > 0) {
    checks.refuse(
      "upstream",
      `excludes ${checks.place("etcd")}: a service follows either etcd or another watch-fanout. Remove one of them.`,
    );
  }
  const own = formatAddress(values.listen);
  const itself = addresses.find((address) => isReachedAt(own, address));
  if (itself !== undefined) {
    checks.refuse(
      "upstream",
      `${itself} is the address of --listen: a relay can't follow itself. Give that of a server nearer to etcd.`,
    );
  }
  const tls = checks.clientTls("upstream-tls-ca", "upstream-tls-cert", "upstream-tls-key", true);
  const tokenFile = checks.file("upstream-token-file");
  return { addresses, tls: tls.caFile === undefined ? undefined : tls, tokenFile };
}

/** Whether a client on this machine that connects to `address` certainly reaches a server that listens on `own`. */
function isReachedAt(own: string, address: string): boolean {
  if (own === address) return true;
  const [ownParts, parts] = [own, address].map((text) => /^\[?([^[\]]*)\]?:(\d+)$/.exec(text));
  const [, ownHost = "", ownPort = ""] = ownParts ?? [];
  const [, host = "", port = ""] = parts ?? [];
  const isOfThisMachine = (name: string): boolean => name === "localhost" || isLoopback(name);
  const acceptsLocal = isOfThisMachine(ownHost) || ownHost === "0.0.0.0" || ownHost === "::";
  return port === ownPort && isOfThisMachine(host) && acceptsLocal;
}
