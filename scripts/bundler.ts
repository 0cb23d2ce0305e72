import { createRequire } from "node:module";

/** The part of Rolldown's interface that is used here. */
interface Bundle {
  write(options: object): Promise<Written>;
  generate(options: object): Promise<Written>;
  close(): Promise<void>;
}

interface Written {
  readonly output: readonly { readonly fileName: string; readonly code?: string }[];
}

interface Bundler {
  rolldown(options: object): Promise<Bundle>;
}

/** The bundler that Vitest brings. */
export function bundler(): Bundler {
  const vitest = createRequire(createRequire(import.meta.url).resolve("vitest/package.json"));
  return createRequire(vitest.resolve("vite/package.json"))("rolldown");
}
