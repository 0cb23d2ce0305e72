#!/bin/sh
# A watch-fanout in the place of `etcd grpc-proxy start`, with its flags, in the form that $FORM names: a process, a
# process with two workers, or a relay of another process. $CHECKOUT is that of watch-fanout, $FLAGS what clients also need.
[ "$1" = grpc-proxy ] && shift
[ "$1" = start ] && shift
watch_fanout() { exec "$CHECKOUT/bin/watch-fanout" "$@" --log-level error --shutdown-timeout 1s; }

# Flags for etcd, those for clients, and the latter as `serve` calls them. Paths of etcd's tests have no spaces.
to_etcd= to_clients=$FLAGS as_serve=$FLAGS
while [ $# -gt 0 ]; do
  case $1 in
    --client-crl-file | --data-dir | --advertise-client-url) shift ;;
    --endpoints | --cacert | --cert | --key) to_etcd="$to_etcd $1 $2"; shift ;;
    --insecure-skip-tls-verify) to_etcd="$to_etcd $1" ;;
    --auto-tls) ;;
    *)
      case $1 in
        --listen-addr) as_serve="$as_serve --listen $2" ;;
        --cert-file) as_serve="$as_serve --tls-cert $2" ;;
        --key-file) as_serve="$as_serve --tls-key $2" ;;
        --trusted-ca-file) as_serve="$as_serve --tls-client-ca $2" ;;
        --metrics-addr) as_serve="$as_serve --admin ${2#http://}" ;;
      esac
      to_clients="$to_clients $1 $2"
      shift
      ;;
  esac
  shift
done

case $FORM in
  process) watch_fanout etcd-proxy $to_etcd $to_clients ;;
  workers) watch_fanout etcd-proxy $to_etcd $to_clients --workers 2 ;;
esac
folder=$(mktemp -d)
(watch_fanout etcd-proxy $to_etcd --listen-addr "unix:$folder/root" --watch-fanout-api on) > /dev/null &
root=$!
until [ -S "$folder/root" ]; do sleep 0.05; done
case $as_serve in *--admin*) ;; *) as_serve="$as_serve --admin 127.0.0.1:0" ;; esac
(watch_fanout serve --upstream "unix:$folder/root" --etcd-api on --insecure on $as_serve) &
relay=$!
trap 'kill $relay $root' TERM INT
wait $relay # until a signal
wait $relay
rm -rf "$folder"
