import { HonestProbe, type Probed } from "./honest-probe.ts";
import { serveParent } from "./worker-process.ts";

let probe: HonestProbe | undefined;

serveParent({
  start: async ({ url, intervalMs }: { readonly url: string; readonly intervalMs: number }) => {
    probe = new HonestProbe(url, intervalMs);
    probe.start();
  },
  stop: async (): Promise<Probed | undefined> => {
    const probed = await probe?.stop();
    probe = undefined;
    return probed;
  },
});
