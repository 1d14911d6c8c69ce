// SPDX-License-Identifier: Apache-2.0
// Fetch URL CA: prints what the URL answers, trusting the authority in the file CA alone.
import java.io.FileInputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

class Fetch {
	static void trust(String file) throws Exception {
		KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
		TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
		SSLContext context = SSLContext.getInstance("TLS");

		store.load(null, null);
		store.setCertificateEntry("ca",
			CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(file)));
		trust.init(store);
		context.init(null, trust.getTrustManagers(), null);
		HttpsURLConnection.setDefaultSSLSocketFactory(context.getSocketFactory());
	}

	public static void main(String[] args) throws Exception {
		trust(args[1]);
		HttpURLConnection connection = (HttpURLConnection) new URL(args[0]).openConnection();
		System.out.println(new String(connection.getInputStream().readAllBytes()));
	}
}
