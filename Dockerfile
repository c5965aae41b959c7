# docker build -t reshard . && docker run --rm -v "$PWD:/data" -w /data reshard convert step-1000 exported --to hf
FROM debian:12-slim AS build
COPY . /reshard
WORKDIR /reshard
RUN apt-get update && tools/quickstart.sh && tools/wheel.sh

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY --from=build /reshard/dist /dist
RUN python3 -m venv /opt/reshard && /opt/reshard/bin/pip install --no-cache-dir /dist/reshard-*.whl
ENV PATH=/opt/reshard/bin:$PATH
ENTRYPOINT ["reshard"]
