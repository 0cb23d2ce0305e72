import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import type { AttributeReader } from "../../codec/attribute-reader.ts";
import type { Codec } from "../../codec/codec.ts";
import { MaskPathError, type ValueMask } from "../../codec/value-mask.ts";
import type { StoredObject } from "../../model/object.ts";
import { withAttributes, withoutUndecodable, withValue } from "../../model/shown-object.ts";
import { type Attributes, noAttributes } from "../../selector/attributes.ts";
import { parseFieldSelector } from "../../selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../selector/parse-label-selector.ts";
import { SelectorError } from "../../selector/selector-error.ts";
import { Projection } from "./projection.ts";
import { RecentlyShown } from "./recently-shown.ts";
import { Selection, shortName } from "./selection.ts";

/** Reads and indexes the attributes of a resource's objects. The attributes of an object are read once. */
export class ObjectAttributes {
  /** The fields that objects and watchers are indexed by. The codec declares all of them. */
  readonly indexes: readonly string[];
  readonly #reader: AttributeReader | undefined;
  readonly #recentlyShown = new RecentlyShown();
  readonly #attributesShown = new Projection(
    "ATTRIBUTES",
    0,
    (object) => {
      const attributes = this.of(object);
      return attributes.isUndecodable
        ? withoutUndecodable(object)
        : withAttributes(object, attributes);
    },
    this.#recentlyShown,
  );

  /** Without a reader objects have no attributes. */
  constructor(reader?: AttributeReader, indexes: readonly string[] = []) {
    this.#reader = reader;
    this.indexes = indexes;
  }

  /** Whether objects have labels and fields, and values can be reduced to parts of them. */
  get hasAttributes(): boolean {
    return this.#reader?.codec.hasAttributes === true;
  }

  /** Number of values that could not be decoded. */
  get undecodable(): number {
    return this.#reader?.undecodable ?? 0;
  }

  /** The fields that selectors may name, in the order of their names. */
  get declaredFields(): readonly string[] {
    return [...(this.#reader?.codec.declaredFields ?? [])].sort();
  }

  /** Returns the object's attributes. The first call reads them and stores them in the object. */
  of(object: StoredObject): Attributes {
    if (this.#reader?.codec.hasAttributes !== true) return noAttributes;
    object.attributes ??= this.#reader.attributesOf(object);
    return object.attributes as Attributes;
  }

  /** Reads one field of an object. */
  readonly readField: FieldReader = (object, field) => this.of(object).fields.get(field) ?? "";

  /**
   * Returns the selection of both selectors; undefined if both are empty, which selects all objects.
   *
   * Throws INVALID_REQUEST for a selector that can't be parsed, for a field that the resource does not declare, and
   * for any selector on a resource without attributes.
   */
  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    if (labelSelector === "" && fieldSelector === "") return undefined;
    const labels = parse("label_selector", labelSelector, parseLabelSelector);
    const fields = parse("field_selector", fieldSelector, parseFieldSelector);
    if (labels.empty && fields.empty) return undefined;
    const codec = this.#reader?.codec;
    if (codec?.hasAttributes !== true) {
      throw invalidRequest(
        labels.empty ? "field_selector" : "label_selector",
        "The objects of this resource have no labels and no fields to select by, since it has no codec: " +
          "leave the selector out.",
      );
    }
    for (const field of fields.fields) {
      if (!codec.declaredFields.has(field)) throw undeclared(field, codec.declaredFields);
    }
    return new Selection(labels, fields, (object) => this.of(object));
  }

  /**
   * The projection of this resource's objects. Throws INVALID_REQUEST for a path that the codec can't follow, which the
   * error names, and if the resource has no codec.
   */
  project(projected: Projected): Projection {
    const codec = this.#reader?.codec;
    if (projected === "ATTRIBUTES") {
      if (codec?.hasAttributes === true) return this.#attributesShown;
      throw invalidRequest(
        "view",
        "The objects of this resource have no labels and no fields, since it has no codec: ask for VIEW_KEYS.",
      );
    }
    const mask = maskOf(codec, projected);
    const show = (object: StoredObject): StoredObject => {
      const value = mask.apply(object.value);
      return value === undefined ? withoutUndecodable(object) : withValue(object, value);
    };
    const { canonical } = mask;
    const name = shortName("MASK", canonical);
    return new Projection(name, canonical.length, show, this.#recentlyShown);
  }

  /** Drops what is kept of recent events. */
  expire(): void {
    this.#recentlyShown.expire();
  }
}

function maskOf(codec: Codec | undefined, paths: readonly string[]): ValueMask {
  const refused = (path: string, why: string): WatchFanoutError =>
    invalidRequest("read_mask", why).with({ path });
  if (codec?.maskOf === undefined) {
    const [path = ""] = paths;
    const shown = JSON.stringify(path);
    const why = `read_mask has the path ${shown}, but this resource has no codec that could follow it: leave read_mask out.`;
    throw refused(path, why);
  }
  try {
    return codec.maskOf(paths);
  } catch (error) {
    if (!(error instanceof MaskPathError)) throw error;
    throw refused(error.path, `read_mask has a path that can't be followed. ${error.message}`);
  }
}

function undeclared(field: string, declared: ReadonlySet<string>): WatchFanoutError {
  const which = declared.size === 0 ? "none" : [...declared].sort().join(", ");
  return invalidRequest(
    "field_selector",
    `This resource declares no field ${JSON.stringify(field)} to select by; it declares: ${which}.`,
  );
}

function parse<T>(field: string, text: string, parser: (text: string) => T): T {
  try {
    return parser(text);
  } catch (error) {
    if (error instanceof SelectorError) {
      throw invalidRequest(field, `${field} can't be read. ${error.message}`);
    }
    throw error;
  }
}

/** What a request asks for of each object: its attributes, or the parts of its value at these paths. */
export type Projected = "ATTRIBUTES" | readonly string[];

/** Reads a field of an object for an index. Returns an empty text for an absent field. */
export type FieldReader = (object: StoredObject, field: string) => string;
