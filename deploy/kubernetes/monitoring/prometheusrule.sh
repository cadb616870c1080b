#!/bin/sh
# The rules of deploy/prometheus as a PrometheusRule of the operator's:
#
#   sh deploy/kubernetes/monitoring/prometheusrule.sh | kubectl apply -f -
#
# Made when it is wanted, since kustomize takes no file from outside its own directory.
set -eu
rules=$(dirname "$0")/../../prometheus

cat <<END
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: weightd
  namespace: weightd
  labels:
    app.kubernetes.io/name: weightd
spec:
  groups:
END
for file in "$rules/recordings.yaml" "$rules/alerts.yaml"; do
    # Both begin with comments and the one key `groups`, whose list goes below the key here.
    sed -e '/^groups:$/d' -e 's/^/  /' -e 's/^ *$//' "$file"
done
