// Uploading in pieces, a model or a dataset's file: announce the files, send each from where the server has it, complete. After a break or a
// reload the same files go on where they stopped, because the server finds the open upload by their names and sizes.

const form = document.querySelector("[data-upload]");
const TRIES = 6;

if (form) {
  const part = (name) => form.querySelector(`[data-${name}]`);
  const progress = part("progress");
  const bar = progress.querySelector("progress");
  const error = part("error");
  const pause = part("pause");
  const button = form.querySelector("[type=submit]");
  const token = form.querySelector("[name=csrfmiddlewaretoken]").value;
  const size = Number(form.dataset.piece);
  const chosen = form.querySelector("input[type=file]");
  const area = form.querySelector("[data-drop]");
  let stop = null;

  const megabytes = (bytes) => (bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`);
  const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

  function show(done, total, text) {
    bar.value = total ? done / total : 1;
    part("text").textContent = text ?? `${megabytes(done)} of ${megabytes(total)}`;
  }

  function atWork(yes) {
    button.disabled = yes;
    pause.hidden = !yes;
    for (const input of form.querySelectorAll("input")) input.disabled = yes;
  }

  // An answer below 500 is given back; a connection that breaks, or a server that is restarted, is tried again.
  async function post(address, body, headers = {}) {
    for (let trial = 1; ; trial += 1) {
      let said = "The connection broke";
      try {
        const answer = await fetch(address, {
          method: "POST", body, signal: stop.signal, redirect: "error", headers: { "X-CSRFToken": token, ...headers },
        });
        if (answer.status < 500) return answer;
        said = `The server answered ${answer.status}`;
      } catch (fault) {
        if (fault.name === "AbortError") throw fault;
      }
      if (trial === TRIES) throw new Error(`${said}. What has arrived is kept; upload again to go on.`);
      part("text").textContent = `${said}; trying again`;
      await wait(Math.min(2 ** trial / 2, 15));
    }
  }

  async function said(answer) {
    const body = await answer.json().catch(() => ({}));
    if (answer.ok || answer.status === 409) return body;
    const unknown = { 403: "You may not upload here, or your sign-in has expired; reload the page.", 404: "This upload is gone; upload again." };
    throw new Error(body.message ?? unknown[answer.status] ?? `The server answered ${answer.status}.`);
  }

  async function send(files, name) {
    const announced = Object.fromEntries(files.map((file) => [file.name, { size: file.size }]));
    const total = files.reduce((sum, file) => sum + file.size, 0);
    const json = { "Content-Type": "application/json" };
    const begun = await said(await post(part("begin").value, JSON.stringify({ name, files: announced }), json));
    const arrived = { ...begun.offsets };
    const done = () => Object.values(arrived).reduce((sum, bytes) => sum + bytes, 0);
    for (const file of files) {
      while (arrived[file.name] < file.size) {
        show(done(), total);
        const from = arrived[file.name];
        const where = `${begun.piece}?${new URLSearchParams({ name: file.name, offset: from })}`;
        const headers = { "Content-Type": "application/octet-stream" };
        arrived[file.name] = (await said(await post(where, file.slice(from, from + size), headers))).offset;
      }
    }
    show(total, total, "Everything has arrived; the files are checked");
    return (await said(await post(begun.complete, null))).url;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const files = [...chosen.files];
    const name = form.elements.name?.value ?? "";
    stop = new AbortController();
    error.hidden = true;
    progress.hidden = false;
    atWork(true);
    try {
      location.assign(await send(files, name));
    } catch (fault) {
      atWork(false);
      if (fault.name === "AbortError") {
        part("text").textContent = "Paused. What has arrived is kept; upload again to go on.";
        return;
      }
      progress.hidden = true;
      error.querySelector("span").textContent = fault.message;
      error.hidden = false;
    }
  });

  pause.addEventListener("click", () => stop.abort());
  function suggestName() {
    const [first] = chosen.files;
    const { name } = form.elements;
    if (first && name && !name.value) name.value = first.name.replace(/(\.[a-z]\w*)+$/i, "").slice(0, name.maxLength);
  }
  chosen.addEventListener("change", suggestName);
  for (const kind of area ? ["dragover", "dragleave", "drop"] : []) {
    area.addEventListener(kind, (event) => {
      event.preventDefault();
      area.toggleAttribute("data-over", kind === "dragover");
      if (kind !== "drop" || !event.dataTransfer.files.length) return;
      chosen.files = event.dataTransfer.files;
      suggestName();
    });
  }
}
