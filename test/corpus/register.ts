/**
 * Plants the bug that the variable CORPUS names in the modules of a process, as they are loaded:
 * `CORPUS=id node --import ./test/corpus/register.ts ...`.
 */
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import { mutatedModule, requestedMutations } from "./mutate.ts";

const mutations = requestedMutations(process.env["CORPUS"]);

if (mutations.length > 0) {
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (!url.startsWith("file:") || loaded.source == null) return loaded;
      const source = String(
        typeof loaded.source === "string"
          ? loaded.source
          : Buffer.from(loaded.source as Uint8Array),
      );
      const path = fileURLToPath(url.split("?")[0] ?? url);
      const replaced = mutatedModule(source, path, mutations);
      return replaced === source ? loaded : { ...loaded, source: replaced };
    },
  });
}
