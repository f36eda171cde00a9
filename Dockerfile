# This stage downloads the wheels and checks their hashes. The image below gets only the wheels that the service needs.
FROM python:3.11-slim AS wheels
WORKDIR /build
COPY constraints.txt .
RUN pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /wheels -r constraints.txt

FROM python:3.11-slim
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /srv/poolkeeper
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY workers workers
COPY config config
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels --editable ".[embedded]" \
    && useradd --system --no-create-home poolkeeper
USER poolkeeper
ENTRYPOINT ["poolkeeperd"]
CMD ["--help"]
