import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { messageOf } from "../base/errors.ts";
import type { CertificateConfig, EtcdTls, FileContent } from "./config.ts";
import { flagOf, type OptionName, type OptionValues } from "./options.ts";
import type { Settings, Step } from "./setting.ts";

/** The options whose value is a text, such as the path of a file. */
type TextOption = {
  [Name in OptionName]: OptionValues[Name] extends string | undefined ? Name : never;
}[OptionName];

/** Collects the problems between options that are valid by themselves, and reads the files that they name. */
export class Checks {
  readonly problems: string[] = [];
  readonly #values: OptionValues;
  readonly #settings: Settings;
  readonly #readFile: (path: string) => Buffer;

  constructor(values: OptionValues, settings: Settings, readFile: (path: string) => Buffer) {
    this.#values = values;
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

  /** The content of a file, which an option or its part at `at` names. Undefined if it can't be read, which is a problem. */
  read(name: OptionName, path: string, at: readonly Step[] = []): Buffer | undefined {
    try {
      return this.#readFile(path);
    } catch (error) {
      this.refuse(name, `${JSON.stringify(path)} can't be read: ${messageOf(error)}.`, at);
      return undefined;
    }
  }

  /** The file that an option names. Undefined if it names none, and if the file can't be read, which is a problem. */
  file(name: TextOption): FileContent | undefined {
    const path = this.#values[name];
    const content = path === undefined ? undefined : this.read(name, path);
    return path === undefined || content === undefined ? undefined : { path, content };
  }

  /** Reads a certificate and its key. Undefined if both are absent, and with a problem. */
  keyPair(certName: TextOption, keyName: TextOption): CertificateConfig | undefined {
    const [certPath, keyPath] = [this.#values[certName], this.#values[keyName]];
    if ((certPath === undefined) !== (keyPath === undefined)) {
      const [given, missing] = certPath === undefined ? [keyName, certName] : [certName, keyName];
      this.refuse(given, `needs ${flagOf(missing)} as well.`);
      return undefined;
    }
    const [cert, key] = [this.file(certName), this.file(keyName)];
    if (cert === undefined || key === undefined) return undefined;
    const pair = { cert: cert.content, key: key.content };
    try {
      createSecureContext(pair);
      return { ...pair, files: { cert: cert.path, key: key.path } };
    } catch (error) {
      const wanted = `not a certificate in PEM with the unencrypted key of ${flagOf(keyName)}`;
      this.refuse(certName, `${JSON.stringify(certPath)} is ${wanted}: ${messageOf(error)}.`);
      return undefined;
    }
  }

  /** Reads the certificates of authorities. */
  authorities(name: TextOption): Buffer | undefined {
    const file = this.file(name);
    if (file === undefined) return undefined;
    try {
      new X509Certificate(file.content);
      return file.content;
    } catch (error) {
      const problem = `${JSON.stringify(file.path)} has no certificate in PEM: ${messageOf(error)}.`;
      this.refuse(name, problem);
      return undefined;
    }
  }

  /** Reads the certificates for calls to another server, which may need one of this service. */
  clientTls(ca: TextOption, cert: TextOption, key: TextOption, isVerified: boolean): EtcdTls {
    const [authorities, client] = [this.authorities(ca), this.keyPair(cert, key)];
    return { ca: authorities, caFile: this.#values[ca], client, isVerified };
  }
}
