import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { flagOf, type OptionName } from "./options.ts";
import type { Settings, Step } from "./setting.ts";

/** A certificate and its private key, in PEM. */
interface KeyPair {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Collects the problems between options that are valid by themselves, and reads the files that they name. */
export class Checks {
  readonly problems: string[] = [];
  readonly #settings: Settings;
  readonly #readFile: (path: string) => Buffer;

  constructor(settings: Settings, readFile: (path: string) => Buffer) {
    this.#settings = settings;
    this.#readFile = readFile;
  }

  /** Whether the option was given. */
  given(name: OptionName): boolean {
    return this.#settings.has(name);
  }

  /** Where the option was given, or its flag if it was not. */
  place(name: OptionName, path: readonly Step[] = []): string {
    return this.#settings.get(name)?.origin(path) ?? flagOf(name);
  }

  /** Adds a problem. `sentence` begins with a lower-case letter and ends with a full stop. */
  refuse(name: OptionName, sentence: string, path: readonly Step[] = []): void {
    this.problems.push(`${this.place(name, path)}: ${sentence}`);
  }

  /** Refuses each of `names` that was given. */
  refuseGiven(names: readonly OptionName[], sentence: string): void {
    for (const name of names) if (this.given(name)) this.refuse(name, sentence);
  }

  /**
   * The content of the file that an option names, or the part of it at `at`. Undefined if it names no file, and if the
   * file can't be read, which is a problem.
   */
  read(name: OptionName, path: string | undefined, at: readonly Step[] = []): Buffer | undefined {
    if (path === undefined) return undefined;
    try {
      return this.#readFile(path);
    } catch (error) {
      this.refuse(name, `${JSON.stringify(path)} can't be read: ${messageOf(error)}.`, at);
      return undefined;
    }
  }

  /** Reads a certificate and its key. Undefined if both are absent, and with a problem. */
  readKeyPair(
    certName: OptionName,
    certPath: string | undefined,
    keyName: OptionName,
    keyPath: string | undefined,
  ): KeyPair | undefined {
    if ((certPath === undefined) !== (keyPath === undefined)) {
      const [given, missing] = certPath === undefined ? [keyName, certName] : [certName, keyName];
      this.refuse(given, `needs ${flagOf(missing)} as well.`);
      return undefined;
    }
    const cert = this.read(certName, certPath);
    const key = this.read(keyName, keyPath);
    if (cert === undefined || key === undefined) return undefined;
    try {
      createSecureContext({ cert, key });
      return { cert, key };
    } catch (error) {
      const pair = `not a certificate in PEM with the unencrypted key of ${flagOf(keyName)}`;
      this.refuse(certName, `${JSON.stringify(certPath)} is ${pair}: ${messageOf(error)}.`);
      return undefined;
    }
  }

  /** Reads the certificates of authorities. */
  readAuthorities(name: OptionName, path: string | undefined): Buffer | undefined {
    const content = this.read(name, path);
    if (content === undefined) return undefined;
    try {
      new X509Certificate(content);
      return content;
    } catch (error) {
      const problem = `${JSON.stringify(path)} has no certificate in PEM: ${messageOf(error)}.`;
      this.refuse(name, problem);
      return undefined;
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
