import { bytesFieldSize, WireWriter } from "../protobuf/wire-writer.ts";
import { type FrameParts, prefixSize } from "../wire/encode.ts";
import { leastInPlace, PartsWriter } from "../wire/parts-writer.ts";
import type { XdsType } from "./types.ts";

/** What a resource consists of. */
export interface ResourceContent {
  readonly version: string;
  /** The google.protobuf.Any. */
  readonly any: Uint8Array;
}

/** One resource in one version. Immutable, and shared by all streams. */
export class XdsResource implements ResourceContent {
  readonly name: string;
  readonly version: string;
  readonly any: Uint8Array;
  /** The response with this resource alone. */
  readonly alone: XdsResponse;

  /** `revision`: that of the store at which it became current. */
  constructor(
    type: XdsType,
    name: string,
    { version, any }: ResourceContent,
    { revision, number }: { readonly revision: number; readonly number: number },
  ) {
    this.name = name;
    this.version = version;
    this.any = any;
    this.alone = new XdsResponse(type, { revision, number }, [this], []);
  }
}

/** A response, which streams share: it is encoded once for each of the two protocols. Immutable. */
export class XdsResponse {
  readonly type: XdsType;
  /** The revision of the store that it is of. */
  readonly revision: number;
  /** Its nonce. */
  readonly number: number;
  readonly resources: readonly XdsResource[];
  /** Names that do not exist any more, for the delta protocol. */
  readonly removed: readonly string[];
  #state: FrameParts | undefined;
  #delta: FrameParts | undefined;

  constructor(
    type: XdsType,
    { revision, number }: { readonly revision: number; readonly number: number },
    resources: readonly XdsResource[],
    removed: readonly string[],
  ) {
    this.type = type;
    this.revision = revision;
    this.number = number;
    this.resources = resources;
    this.removed = removed;
  }

  /** The response with gRPC's prefix. */
  frames(isDelta: boolean): FrameParts {
    if (isDelta) {
      this.#delta ??= encode(this, true);
      return this.#delta;
    }
    this.#state ??= encode(this, false);
    return this.#state;
  }
}

/**
 * Encodes an envoy.service.discovery.v3.DiscoveryResponse or DeltaDiscoveryResponse. The first four fields have the same
 * numbers in both; a delta response has resources with names and versions.
 */
function encode(response: XdsResponse, isDelta: boolean): FrameParts {
  const { type, revision, number, resources, removed } = response;
  const [version, nonce] = [String(revision), String(number)];
  const names = isDelta ? removed : [];
  let size = textSize(version) + textSize(type.url) + textSize(nonce);
  for (const name of names) size += textSize(name);
  let inPlace = 0;
  for (const resource of resources) {
    size += bytesFieldSize(resourceSize(resource, isDelta));
    const { byteLength } = resource.any;
    if (byteLength >= leastInPlace) inPlace += byteLength;
  }
  // A small response is one part, which is sent at once.
  const parts = new PartsWriter(prefixSize + size - inPlace);
  parts.room(prefixSize).prefix(size);
  writeText(parts, 0x0a, version);
  for (const resource of resources) writeResource(parts, resource, isDelta);
  writeText(parts, 0x22, type.url);
  writeText(parts, 0x2a, nonce);
  for (const name of names) writeText(parts, 0x32, name);
  return parts.finish();
}

/** Size of a resource in a response without its tag and length: an Any, or an envoy.service.discovery.v3.Resource. */
function resourceSize({ any, name, version }: XdsResource, isDelta: boolean): number {
  if (!isDelta) return any.byteLength;
  return textSize(version) + bytesFieldSize(any.byteLength) + textSize(name);
}

function writeResource(parts: PartsWriter, resource: XdsResource, isDelta: boolean): void {
  const { any, name, version } = resource;
  writeLength(parts, 0x12, resourceSize(resource, isDelta));
  if (isDelta) {
    writeText(parts, 0x0a, version);
    writeLength(parts, 0x12, any.byteLength);
  }
  parts.add(any, 0, any.byteLength);
  if (isDelta) writeText(parts, 0x1a, name);
}

function writeLength(parts: PartsWriter, tag: number, length: number): void {
  const writer = parts.room(bytesFieldSize(length) - length);
  writer.byte(tag);
  writer.varint(length);
}

function writeText(parts: PartsWriter, tag: number, text: string): void {
  const size = Buffer.byteLength(text);
  parts.room(bytesFieldSize(size)).textField(tag, text, size);
}

function textSize(text: string): number {
  return bytesFieldSize(Buffer.byteLength(text));
}

/** Encodes a google.protobuf.Any, in memory of its own: it is kept, and what else is in a pool of buffers is not. */
export function encodeAny(typeUrl: string, value: Uint8Array): Buffer {
  const urlSize = Buffer.byteLength(typeUrl);
  const size = bytesFieldSize(urlSize) + bytesFieldSize(value.byteLength);
  const writer = new WireWriter(Buffer.allocUnsafeSlow(size));
  writer.textField(0x0a, typeUrl, urlSize);
  writer.byte(0x12);
  writer.varint(value.byteLength);
  writer.raw(value);
  return writer.bytes;
}
