import { WatchFanoutError } from "../../../base/errors.ts";
import type { Client } from "../../../client/client.ts";
import type { Page } from "../../../client/watch/client-calls.ts";
import type { WatchEvent } from "../../../model/event.ts";
import { estimatedBytes, type ShownAttributes, type StoredObject } from "../../../model/object.ts";
import { type CommandIo, type Output, tableOptions } from "../../output/command-io.ts";
import { bytesOf, printableText } from "../../output/printable.ts";
import { Table } from "../../output/table.ts";
import { Columns } from "./columns.ts";
import type { Json } from "./json-path.ts";
import type { DecodedFormat } from "./output-format.ts";
import { type MessageOptions, type ValueDecoder, valueDecoder } from "./value-decoder.ts";
import { yamlText } from "./yaml.ts";

type Document = { readonly [name: string]: Json };

/** What the printer uses of a command. */
export interface PrinterSession {
  readonly client: Pick<Client, "resources">;
  readonly output: Output;
  readonly io: CommandIo;
  say(message: string): void;
}

export interface PrinterOptions extends MessageOptions {
  readonly output: DecodedFormat;
  readonly keysOnly?: true;
}

/**
 * Maximum size of a list that a jsonpath template is applied to, in bytes as estimatedBytes counts: the template may need
 * all of it at once. The other formats print page by page.
 */
const maxListBytes = 64 * 1024 * 1024;

/** Prints objects as documents with decoded values, as YAML, by a jsonpath template, or in the user's columns. */
export class DecodedPrinter {
  readonly #session: PrinterSession;
  readonly #options: PrinterOptions;
  readonly #decoders: ReadonlyMap<string, ValueDecoder>;
  readonly #table: Table | undefined;

  private constructor(
    session: PrinterSession,
    options: PrinterOptions,
    decoders: ReadonlyMap<string, ValueDecoder>,
  ) {
    this.#session = session;
    this.#options = options;
    this.#decoders = decoders;
    const { output } = options;
    this.#table =
      output instanceof Columns ? new Table(output.headings, tableOptions(session.io)) : undefined;
  }

  /** Asks the service for the codecs of the resources. Rejects with INVALID_REQUEST for unusable descriptors. */
  static async open(
    session: PrinterSession,
    options: PrinterOptions,
    resources: readonly string[],
  ): Promise<DecodedPrinter> {
    const infos = await session.client.resources();
    const decoders = new Map<string, ValueDecoder>();
    for (const resource of new Set(resources)) {
      const info = infos.find(({ name }) => name === resource);
      const { decoder, warning } = await valueDecoder(resource, info, options);
      decoders.set(resource, decoder);
      if (warning !== undefined && options.keysOnly !== true) session.say(warning);
    }
    return new DecodedPrinter(session, options, decoders);
  }

  /** Prints one object. */
  async printObject(resource: string, object: StoredObject): Promise<void> {
    await this.#print(this.#documentOf(resource, object));
  }

  /** Prints pages of one list. As YAML and for a template, they are one document with `revision` and `items`. */
  async printPages(resource: string, pages: AsyncIterable<Page>): Promise<void> {
    const { output } = this.#options;
    const items: Document[] = [];
    let head: Document | undefined;
    let bytes = 0;
    let count = 0;
    for await (const page of pages) {
      const documents = page.items.map((item) => this.#documentOf(resource, item));
      count += documents.length;
      if (output instanceof Columns) {
        await this.#printRows(documents);
        continue;
      }
      const isFirst = head === undefined;
      head ??= { revision: page.revision, history_id: page.historyId };
      if (output === "yaml") {
        if (isFirst) await this.#session.output.write(yamlText(head));
        if (documents.length === 0) continue;
        if (count === documents.length) await this.#session.output.write("items:\n");
        await this.#session.output.write(yamlText(documents));
        continue;
      }
      for (const item of page.items) bytes += estimatedBytes(item);
      if (bytes > maxListBytes) throw tooLarge();
      items.push(...documents);
    }
    if (output === "yaml" && count === 0) await this.#session.output.write("items: []\n");
    if (output !== "yaml" && head !== undefined) await this.#print({ ...head, items });
  }

  /** Prints events, each as its object with the `type` of the event, and `previous` if the event has it. */
  async printEvents(
    resource: string,
    events: readonly WatchEvent[],
    source: Document = {},
  ): Promise<void> {
    const documents = events.map(
      ({ type, object, previous }): Document => ({
        ...source,
        type,
        ...this.#documentOf(resource, object),
        ...(previous && { previous: this.#documentOf(resource, previous) }),
      }),
    );
    if (this.#options.output instanceof Columns) return this.#printRows(documents);
    for (const document of documents) {
      if (this.#options.output === "yaml") await this.#session.output.write("---\n");
      await this.#print(document);
    }
  }

  async #print(document: Document): Promise<void> {
    const { output: format } = this.#options;
    const { output, io } = this.#session;
    if (format instanceof Columns) return this.#printRows([document]);
    if (format === "yaml") return output.write(yamlText(document));
    const text = format.textFor(document);
    if (text === "") return;
    // Exact in a pipe. On a terminal, values must not control it.
    const shown = io.stdout.isTTY === true ? text.replace(/[^\n\t]+/g, printableText) : text;
    await output.write(shown.endsWith("\n") ? shown : `${shown}\n`);
  }

  async #printRows(documents: readonly Document[]): Promise<void> {
    const { output: format } = this.#options;
    if (!(format instanceof Columns) || this.#table === undefined) return;
    const rows = documents.map((document) => format.rowOf(document));
    await this.#session.output.write(this.#table.format(rows));
  }

  #documentOf(resource: string, object: StoredObject): Document {
    const { key, createRevision, modRevision, version, lease, attributes } = object;
    const decoder = this.#decoders.get(resource);
    const shown =
      attributes !== undefined
        ? attributesJson(attributes)
        : this.#options.keysOnly === true
          ? {}
          : decoder?.valueFields(object.value);
    return {
      key,
      create_revision: createRevision,
      mod_revision: modRevision,
      version,
      lease: String(lease),
      ...shown,
    };
  }
}

/** What a view shows in place of a value, as the fields of a StoredObject that only such an object has. */
export function attributesJson({ labels, fields, isUndecodable }: ShownAttributes): Document {
  if (isUndecodable) return { undecodable: true };
  return { attributes: { labels: Object.fromEntries(labels), fields: Object.fromEntries(fields) } };
}

function tooLarge(): WatchFanoutError {
  return new WatchFanoutError(
    "LIST_TOO_LARGE",
    `The list has more than ${bytesOf(maxListBytes)}, which a jsonpath template is not applied to at once. ` +
      "Use a prefix, --limit or -o columns=.",
  );
}
