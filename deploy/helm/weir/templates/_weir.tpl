{{- /* SPDX-License-Identifier: Apache-2.0
For pods of your own. In a chart that depends on this one, with `weir: {app: {create: false}}` in its values:

  template:
    metadata:
      labels: {{- include "weir.labels" .Subcharts.weir | nindent 8 }}
    spec:
      initContainers:
        {{- include "weir.sidecar" .Subcharts.weir | nindent 8 }}
*/ -}}
{{- define "weir.policyJson" -}}
{{ toPrettyJson .Values.policy }}
{{ end -}}

{{- /* A policy that changes has another name, so the pods that read it start anew. */ -}}
{{- define "weir.policyName" -}}
{{ .Release.Name }}-weir-policy-{{ include "weir.policyJson" . | sha256sum | trunc 10 }}
{{- end -}}

{{- /* What the network policy finds guarded pods by. */ -}}
{{- define "weir.labels" -}}
weir.example/guarded: {{ .Release.Name | quote }}
{{- end -}}

{{- /* An item of initContainers: a native sidecar. First, so that nothing else of the pod starts before the startup probe has
found it healthy, and its rules in place. */ -}}
{{- define "weir.sidecar" -}}
- name: weir
  image: {{ .Values.image | quote }}
  restartPolicy: Always
  env:
    - name: OPENSANDBOX_EGRESS_MODE
      value: {{ .Values.mode | quote }}
    - name: OPENSANDBOX_EGRESS_RULES
      valueFrom: {configMapKeyRef: {name: {{ include "weir.policyName" . }}, key: policy.json}}
    {{- with .Values.token }}{{ if .secret }}
    - name: OPENSANDBOX_EGRESS_TOKEN
      valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}}}
    {{- end }}{{ end }}
    {{- if ne (int .Values.port) 18080 }}
    - {name: OPENSANDBOX_EGRESS_HTTP_ADDR, value: ":{{ int .Values.port }}"}
    {{- end }}
    {{- range $name, $value := .Values.env }}
    - {name: {{ $name }}, value: {{ $value | quote }}}
    {{- end }}
  ports:
    - {name: egress-api, containerPort: {{ int .Values.port }}}
  startupProbe:
    httpGet: {path: /healthz, port: egress-api}
    periodSeconds: 1
    failureThreshold: 30
  {{- with .Values.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsUser: 65532
    runAsGroup: 65532
    runAsNonRoot: true
    readOnlyRootFilesystem: true
    # The program's file capability counts for nothing without this.
    allowPrivilegeEscalation: true
    capabilities: {drop: [ALL], add: [NET_ADMIN]}
    seccompProfile: {type: RuntimeDefault}
{{- end -}}
