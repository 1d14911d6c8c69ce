// SPDX-License-Identifier: Apache-2.0

import java.net.InetAddress;
import java.net.UnknownHostException;

/** Lookup NAME… - Java's resolver; one line per name, as lookup.c prints it. */
public class Lookup {
    public static void main(String[] names) {
        for (String name : names) {
            long from = System.nanoTime();
            StringBuilder found = new StringBuilder();
            try {
                for (InetAddress address : InetAddress.getAllByName(name))
                    found.append(' ').append(address.getHostAddress());
            } catch (UnknownHostException e) {
                found.append(" failed");
            }
            System.out.println((System.nanoTime() - from) / 1000000 + "" + found);
        }
    }
}
