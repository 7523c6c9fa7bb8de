// Browsers start no workers for pages on disk: there the search runs in a hidden frame, which behaves like one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = `<script src="${url}"></script>`
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve)).then(() => {
        const scope = this.frame.contentWindow
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        return scope
      })
      document.body.append(this.frame)
    }

    async postMessage(data) {
      const scope = await this.ready
      scope.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
