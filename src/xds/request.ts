import { invalidRequest } from "../base/errors.ts";
import { startOf } from "../base/text-memory.ts";
import { MessageCursor, WireFault } from "../protobuf/message-cursor.ts";

/** Maximum length of the text of a NACK that is kept, in characters. */
const maxMessageLength = 1_024;

/** Maximum length of a version that is kept, in characters. No resource has one of that length. */
const maxVersionLength = 64;

/** Maximum length of a node's id that is kept, in characters. */
const maxNodeLength = 256;

/** A request of either protocol, as far as it is used. */
export interface DiscoveryRequest {
  readonly typeUrl: string;
  /** The nonce of the response that it is about; empty: none, as in the first request of a type. */
  readonly nonce: string;
  /** State of the world: all names that the client asks for. Delta: those that it adds. */
  readonly names: readonly string[];
  /** Delta: the names that it no longer asks for. */
  readonly removed: readonly string[];
  /** Delta, in the first request: the versions that the client has, by name. */
  readonly versions: ReadonlyMap<string, string>;
  /** The client's id for itself. Only a hint; empty: absent, as in later requests. */
  readonly node: string;
  /** Why the client has refused the response; undefined: it has not. */
  readonly refusal: string | undefined;
}

/** The tag of a field that only the other protocol has. */
const absent = -1;

/** The tags of the fields of an envoy.service.discovery.v3.DiscoveryRequest. All are length-delimited. */
const stateTags = {
  ...{ node: 0x12, names: 0x1a, typeUrl: 0x22, nonce: 0x2a, refusal: 0x32 },
  ...{ removed: absent, versions: absent },
};

/** Those of an envoy.service.discovery.v3.DeltaDiscoveryRequest. */
const deltaTags: typeof stateTags = {
  ...{ node: 0x0a, typeUrl: 0x12, names: 0x1a, removed: 0x22, versions: 0x2a },
  ...{ nonce: 0x32, refusal: 0x3a },
};

const noVersions: ReadonlyMap<string, string> = new Map();

/** Reads a request. Throws INVALID_REQUEST for what is not one, or has more than `maxNames` names of a kind. */
export function readRequest(
  message: Uint8Array,
  isDelta: boolean,
  maxNames: number,
): DiscoveryRequest {
  try {
    return read(new MessageCursor(message), isDelta ? deltaTags : stateTags, maxNames);
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
    const type = `${isDelta ? "Delta" : ""}DiscoveryRequest`;
    throw invalidRequest(
      "",
      `The request ${error.message}. Send a valid envoy.service.discovery.v3.${type}.`,
    );
  }
}

function read(cursor: MessageCursor, tags: typeof stateTags, maxNames: number): DiscoveryRequest {
  let [typeUrl, nonce, node] = ["", "", ""];
  let refusal: string | undefined;
  const names: string[] = [];
  const removed: string[] = [];
  let versions = noVersions as Map<string, string>;
  const add = (list: string[]): void => {
    if (list.length === maxNames) throw new WireFault(`has more than ${maxNames} names`);
    list.push(cursor.text());
  };
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === tags.names) add(names);
    else if (tag === tags.typeUrl) typeUrl = cursor.text();
    else if (tag === tags.nonce) nonce = cursor.text();
    else if (tag === tags.removed) add(removed);
    else if (tag === tags.versions) {
      if (versions === noVersions) versions = new Map();
      if (versions.size === maxNames) throw new WireFault(`has more than ${maxNames} versions`);
      const [name, version] = texts(cursor, 0x12);
      versions.set(name, startOf(version, maxVersionLength));
    } else if (tag === tags.node) node = startOf(texts(cursor, absent)[0], maxNodeLength);
    else if (tag === tags.refusal) refusal = startOf(texts(cursor, 0x12)[1], maxMessageLength);
    else cursor.skip(tag);
  }
  return { typeUrl, nonce, names, removed, versions, node, refusal };
}

/** Reads the text in field 1 of a message, if it is one, and that with the tag `second`. */
function texts(cursor: MessageCursor, second: number): [string, string] {
  const outer = cursor.enter();
  let [one, two] = ["", ""];
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x0a) one = cursor.text();
    else if (tag === second) two = cursor.text();
    else cursor.skip(tag);
  }
  cursor.leave(outer);
  return [one, two];
}
