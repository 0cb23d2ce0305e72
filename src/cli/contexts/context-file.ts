import { randomBytes } from "node:crypto";
import {
  closeSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { Document } from "yaml";
import { invalidRequest, messageOf, systemCode } from "../../base/errors.ts";
import { parseYamlFile, type YamlMapping } from "../../config/yaml-file.ts";

/** Loaded with the first change: other commands start faster without it. */
const loadYaml = (): typeof import("yaml") => createRequire(import.meta.url)("yaml");

/** What a context can set: a flag of the client commands, by its name, or a token, which has no flag. */
export const contextFields = [
  ...["address", "resource", "output", "timeout", "descriptors", "message"],
  ...["tls", "tls-ca", "tls-client-cert", "tls-client-key", "tls-server-name"],
  ...["bearer-token-file", "bearer-token"],
] as const;

/** The fields that name files. A relative path begins at the folder of the context's file. */
export const fileFields: readonly string[] = [
  ...["descriptors", "tls-ca", "tls-client-cert", "tls-client-key", "bearer-token-file"],
];

/** Maximum size of the file, in bytes, and of a name. */
const maxBytes = 1024 * 1024;
const contextName = /^[\w.@-]{1,100}$/;

/** One service, and how to call it. */
export interface Context {
  readonly name: string;
  readonly fields: ReadonlyMap<string, string>;
  /** The file and line of a field, as messages begin. */
  place(field: string): string;
}

/** `config.yaml` in the user's folder of configurations, by the XDG Base Directory specification. */
export function defaultContextPath(env: NodeJS.ProcessEnv): string {
  const { XDG_CONFIG_HOME: given = "" } = env;
  // The specification says to ignore relative paths.
  const folder = given.startsWith("/") ? given : join(homedir(), ".config");
  return join(folder, "watch-fanout", "config.yaml");
}

/** The file of the contexts. Changes take effect with `write`. Errors are INVALID_REQUEST, and name the line. */
export class ContextFile {
  readonly path: string;
  readonly #content: string;
  #changed: Document | undefined;
  readonly #contexts: ReadonlyMap<string, Context>;
  /** The context that is used unless another is named. */
  readonly current: string | undefined;

  private constructor(path: string, content: string) {
    this.path = path;
    const { mapping, problems } =
      content === ""
        ? { mapping: undefined, problems: [] }
        : parseYamlFile(path, content, "fields to values");
    const contexts = new Map<string, Context>();
    const found = [...problems];
    let current: string | undefined;
    for (const [key, value] of Object.entries(mapping?.values ?? {})) {
      if (mapping === undefined) break;
      if (key === "contexts") {
        found.push(...readContexts(mapping, value, dirname(path), contexts));
      } else if (key === "current-context" && (typeof value === "string" || value === null)) {
        current = value ?? undefined;
      } else if (key === "current-context") {
        found.push(`${mapping.place([key])}: must be the name of a context.`);
      } else {
        found.push(`${mapping.place([key])}: is not a field. Fields: contexts, current-context.`);
      }
    }
    if (found.length > 0) throw invalidRequest("config", found.join("\n"));
    this.#contexts = contexts;
    this.current = current;
    this.#content = content;
  }

  /** Reads the file. An absent one has no contexts, unless it `mustExist`. */
  static read(path: string, mustExist: boolean): ContextFile {
    return new ContextFile(path, contentOf(path, mustExist));
  }

  /** The content with the changes so far. */
  get #document(): Document {
    if (this.#changed !== undefined) return this.#changed;
    const { Document, isMap, parseDocument } = loadYaml();
    const document = parseDocument(this.#content);
    this.#changed = isMap(document.contents) ? document : new Document({});
    return this.#changed;
  }

  get names(): readonly string[] {
    return [...this.#contexts.keys()];
  }

  context(name: string): Context {
    const found = this.#contexts.get(name);
    if (found !== undefined) return found;
    const others = this.names.length === 0 ? "It is empty" : `It has ${this.names.join(", ")}`;
    throw invalidRequest(
      "context",
      `${this.path} has no context ${JSON.stringify(name)}. ${others}.`,
    );
  }

  /** Sets fields of a context, which it creates if it is absent. An undefined value removes its field. */
  set(name: string, fields: ReadonlyMap<string, string | undefined>): void {
    if (!contextName.test(name)) {
      const rule = "letters, digits and ._@-, at most 100";
      throw invalidRequest(
        "context",
        `${JSON.stringify(name)} is not a name of a context: ${rule}.`,
      );
    }
    if (!this.#contexts.has(name)) {
      this.#document.setIn(["contexts", name], this.#document.createNode({}));
    }
    for (const [field, text] of fields) {
      const at = ["contexts", name, field];
      if (text === undefined) this.#document.deleteIn(at);
      else this.#document.setIn(at, field === "tls" ? text === "true" : text);
    }
    if (this.#contexts.size === 0) this.use(name);
  }

  /** Makes a context the current one. */
  use(name: string): void {
    this.#document.set("current-context", name);
  }

  delete(name: string): void {
    this.context(name);
    this.#document.deleteIn(["contexts", name]);
    if (this.current === name) this.#document.delete("current-context");
  }

  /**
   * Replaces the file at once, so that no reader sees half of it, readable by its owner only. Throws INVALID_REQUEST, and
   * writes nothing, if the content would not be valid.
   */
  write(): void {
    const content = this.#document.toString();
    new ContextFile(this.path, content);
    let temporary: string | undefined;
    try {
      mkdirSync(dirname(this.path), { recursive: true, mode: 0o700 });
      const target = realPath(this.path);
      temporary = `${target}.${randomBytes(6).toString("hex")}`;
      const file = openSync(temporary, "wx", 0o600);
      try {
        fchmodSync(file, 0o600);
        writeFileSync(file, content);
        fsyncSync(file);
      } finally {
        closeSync(file);
      }
      renameSync(temporary, target);
    } catch (error) {
      if (temporary !== undefined) rmSync(temporary, { force: true });
      throw invalidRequest("config", `${this.path} can't be written: ${messageOf(error)}.`);
    }
  }
}

function readContexts(
  mapping: YamlMapping,
  contexts: unknown,
  folder: string,
  into: Map<string, Context>,
): readonly string[] {
  if (!isRecord(contexts)) return [`${mapping.place(["contexts"])}: must map names to contexts.`];
  const problems: string[] = [];
  for (const [name, content] of Object.entries(contexts)) {
    const path = ["contexts", name];
    if (!contextName.test(name) || !isRecord(content)) {
      problems.push(`${mapping.place(path)}: must be a name with the fields of its context.`);
      continue;
    }
    const fields = new Map<string, string>();
    for (const [field, value] of Object.entries(content)) {
      const place = mapping.place([...path, field]);
      const text = textOf(field, value);
      if (!contextFields.some((known) => known === field)) {
        problems.push(`${place}: is not a field. Fields: ${contextFields.join(", ")}.`);
      } else if (text === undefined) {
        const expected = field === "tls" ? "true or false" : "a text that is not empty";
        problems.push(`${place}: must be ${expected}.`);
      } else {
        fields.set(field, fileFields.includes(field) ? resolve(folder, text) : text);
      }
    }
    if (fields.has("bearer-token") && fields.has("bearer-token-file")) {
      problems.push(`${mapping.place([...path, "bearer-token"])}: bearer-token-file is set, too.`);
    }
    into.set(name, { name, fields, place: (field) => mapping.place([...path, field]) });
  }
  return problems;
}

/** A value of the file as the text of its flag. Undefined if it has a wrong type. */
function textOf(field: string, value: unknown): string | undefined {
  if (field === "tls") return typeof value === "boolean" ? String(value) : undefined;
  const texts = Array.isArray(value) ? value : [value];
  const isText = texts.every((each) => typeof each === "string" && each !== "");
  return isText && texts.length > 0 ? texts.join(",") : undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Where a link leads, as it is to stay one. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function contentOf(path: string, mustExist: boolean): string {
  let content: string;
  let isOpenToOthers: boolean;
  try {
    const file = openSync(path, "r");
    try {
      const { mode, size } = fstatSync(file);
      if (size > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`);
      content = readFileSync(file, "utf8");
      isOpenToOthers = (mode & 0o077) !== 0;
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if (systemCode(error) === "ENOENT" && !mustExist) return "";
    throw invalidRequest("config", `${path} can't be read: ${messageOf(error)}.`);
  }
  if (isOpenToOthers && /^\s*bearer-token\s*:/m.test(content)) {
    const advice = `Run "chmod 600 ${path}".`;
    throw invalidRequest("config", `${path} has a token, and other users may read it. ${advice}`);
  }
  return content;
}
