#!/bin/sh
# Stores what xDS needs to route calls for xds:///greeter to the instances of the service "greeter".
#
#     watch-fanout serve --resource clusters=/mesh/clusters/ --resource listeners=/mesh/listeners/ \
#       --resource routes=/mesh/routes/ --resource instances=/mesh/instances/ \
#       --xds cds=clusters,lds=listeners,rds=routes,eds=instances
#
#     WATCH_FANOUT="npx watch-fanout" examples/xds/store.sh
#     npx watch-fanout put -r instances greeter/1 '{"address":"127.0.0.1","port":7001}'
set -eu
put="${WATCH_FANOUT:-watch-fanout} put"
api=type.googleapis.com/envoy

$put -r clusters greeter '{
  "@type": "'$api'.config.cluster.v3.Cluster",
  "name": "greeter",
  "type": "EDS",
  "eds_cluster_config": { "eds_config": { "ads": {}, "resource_api_version": "V3" } }
}'

$put -r routes greeter '{
  "@type": "'$api'.config.route.v3.RouteConfiguration",
  "name": "greeter",
  "virtual_hosts": [
    {
      "name": "greeter",
      "domains": ["*"],
      "routes": [
        {
          "match": { "prefix": "" },
          "route": { "cluster": "greeter", "retry_policy": { "retry_on": "unavailable", "num_retries": 3 } }
        }
      ]
    }
  ]
}'

$put -r listeners greeter '{
  "@type": "'$api'.config.listener.v3.Listener",
  "name": "greeter",
  "api_listener": {
    "api_listener": {
      "@type": "'$api'.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
      "rds": {
        "config_source": { "ads": {}, "resource_api_version": "V3" },
        "route_config_name": "greeter"
      },
      "http_filters": [
        {
          "name": "envoy.filters.http.router",
          "typed_config": { "@type": "'$api'.extensions.filters.http.router.v3.Router" }
        }
      ]
    }
  }
}'
