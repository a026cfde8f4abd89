# The scheduler with all that Spark and Flower jobs need here: docs/deploy.md#in-a-container.
FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=aws,deploy,flower,gcp,spark
# Without it, pip takes torch with CUDA, several gigabytes.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
COPY . /src
RUN python -m venv /opt/spotweave && /opt/spotweave/bin/pip install --no-cache-dir "/src[$EXTRAS]"

FROM python:3.12-slim-bookworm
# --build-arg JAVA= leaves it out: Spark jobs are refused then.
ARG JAVA=openjdk-17-jre-headless
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap $JAVA \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home --home-dir /var/lib/spotweave spotweave
COPY --from=build /opt/spotweave /opt/spotweave
# With TLS, say here how the service is reached, and who signed its certificate in SSL_CERT_FILE.
ENV PATH=/opt/spotweave/bin:$PATH SPOTWEAVE_SERVER=http://127.0.0.1:8421
USER spotweave
WORKDIR /var/lib/spotweave
EXPOSE 8421
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=5s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['SPOTWEAVE_SERVER'] + '/readyz')"]
ENTRYPOINT ["spotweave"]
CMD ["serve", "--config", "/etc/spotweave/deployment.yaml"]
