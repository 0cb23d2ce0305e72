/**
 * A resolver for grpc-js: channels to `watchfanout:///NAMESPACE/NAME` go to the addresses in the object of that key
 * in `endpoints`, and follow it when it changes. While the service is away they keep the addresses that they have.
 * grpc-js calls the interface experimental; this is of 1.14.
 */
import { experimental, status } from "@grpc/grpc-js";
import { type Client, jsonValues, type SharedInformer } from "watch-fanout/client";
import { z } from "zod";

const Endpoints = z.object({ addresses: z.array(z.string()) });

type Informer = SharedInformer<z.infer<typeof Endpoints>>;

/** Makes `watchfanout:///KEY` a name for channels of this process. The client is to be closed after these. */
export function registerWatchFanoutResolver(client: Client, resource: string = "endpoints"): void {
  const endpoints = client.resource(resource, jsonValues(Endpoints.parse));

  class EndpointsResolver implements experimental.Resolver {
    readonly #key: string;
    readonly #listener: experimental.ResolverListener;
    #informer: Informer | undefined;

    static getDefaultAuthority(target: experimental.GrpcUri): string {
      return nameOf(target.path);
    }

    constructor(target: experimental.GrpcUri, listener: experimental.ResolverListener) {
      this.#key = target.path;
      this.#listener = listener;
    }

    /** Begins to follow the endpoints. While it does, there is nothing newer to be had by asking. */
    updateResolution(): void {
      if (this.#informer !== undefined) return;
      const informer = endpoints.informer({
        // Other keys may begin in the same way: they come too, and are passed over.
        scope: { prefix: this.#key },
        delivery: "LATEST_STATE",
      });
      this.#informer = informer;
      const look = ({ key }: { readonly key: string }): void => {
        if (key === this.#key) this.#tell(informer);
      };
      informer.addEventHandler({
        onAdd: look,
        onUpdate: (_before, object) => look(object),
        onDelete: look,
      });
      informer.start();
      // That there are none is known only then.
      informer.waitForSync().then(
        () => this.#tell(informer),
        () => {},
      );
    }

    destroy(): void {
      const informer = this.#informer;
      this.#informer = undefined;
      void informer?.stop();
    }

    #tell(informer: Informer): void {
      if (informer !== this.#informer) return;
      const addresses = informer.indexer.get(this.#key)?.value.addresses ?? [];
      const list = addresses.flatMap(addressOf).map((address) => ({ addresses: [address] }));
      this.#listener(experimental.statusOrFromValue(list), {}, null, "");
      if (list.length > 0) return;
      // With an empty list alone, calls would wait for their deadline: now they fail, unless they wait for ready.
      const details = `There are no addresses in ${resource} ${JSON.stringify(this.#key)}.`;
      const none = experimental.statusOrFromError<experimental.Endpoint[]>({
        code: status.UNAVAILABLE,
        details,
      });
      this.#listener(none, {}, null, "");
    }
  }

  experimental.registerResolver("watchfanout", EndpointsResolver);
}

/** What comes after the namespace. */
function nameOf(key: string): string {
  return key.slice(key.indexOf("/") + 1);
}

/** Passes over what is not HOST:PORT, with a warning: the other addresses are as good as before. */
function addressOf(text: string): { host: string; port: number }[] {
  const { host, port } = experimental.splitHostPort(text) ?? {};
  if (host !== undefined && port !== undefined) return [{ host, port }];
  process.emitWarning(`${JSON.stringify(text)} is no HOST:PORT.`);
  return [];
}
